// SPDX-License-Identifier: Apache-2.0
// What every operator of a block computes on the parts that one rank holds, forward and backward,
// in double precision. Sums run over the indices held, so a cut variable gives partial sums by
// itself. Activation functions and rotations are simple stand-ins with the same dependencies.
#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include "models/operators.hpp"
#include "tests/unit/plan/semantics/rank_tensor.hpp"

namespace orrery::plan::semantics {

using models::Block;
using models::Operator;
using models::OpKind;

// Which expert a copy of a token goes to: fixed, uneven, different for the copies of a token.
inline int expert_of(const std::vector<int>& copy, int experts) {
  return (copy[0] * 3 + copy[1] * 5 + copy[2] * (experts / 2) + copy[0] * copy[1]) % experts;
}

// Where the elements of a space of more variables lie in an operand: what every index of the space
// adds to the position, by dimension of the space; -1: not held.
using Strides = std::vector<std::vector<Eigen::Index>>;

inline Strides strides_in(const Part& operand, const std::vector<Var>& vars,
                          const std::vector<Indices>& index) {
  Strides strides(vars.size());
  Eigen::Index stride = operand.size();
  for (std::size_t dim = 0; dim < operand.vars.size(); ++dim) {
    const Indices& held = operand.index[dim];
    stride /= std::max<Eigen::Index>(1, static_cast<Eigen::Index>(held.size()));
    const auto slot = static_cast<std::size_t>(
        std::find(vars.begin(), vars.end(), operand.vars[dim]) - vars.begin());
    for (const int global : index[slot]) {
      const auto found = std::find(held.begin(), held.end(), global);
      strides[slot].push_back(found == held.end() ? -1 : (found - held.begin()) * stride);
    }
  }
  for (std::size_t slot = 0; slot < vars.size(); ++slot) {
    strides[slot].resize(index[slot].size(), 0);
  }
  return strides;
}

// A sum of products of elements, over all indices of a space that the three operands hold.
class ProductSum {
 public:
  ProductSum(const Part& a, const Part& b, Part& into) : a_(a), b_(b), into_(into) {
    std::vector<Var> vars = a.vars;
    std::vector<Indices> index = a.index;
    for (std::size_t dim = 0; dim < b.vars.size(); ++dim) {
      if (a.dim_of(b.vars[dim]) < 0) {
        vars.push_back(b.vars[dim]);
        index.push_back(b.index[dim]);
      }
    }
    in_a_ = strides_in(a, vars, index);
    in_b_ = strides_in(b, vars, index);
    target_ = strides_in(into, vars, index);
  }

  void add(std::size_t dim = 0, Eigen::Index at_a = 0, Eigen::Index at_b = 0,
           Eigen::Index at = 0) const {
    if (dim == in_a_.size()) {
      into_.data[at] += a_.data[at_a] * b_.data[at_b];
      return;
    }
    for (std::size_t place = 0; place < in_a_[dim].size(); ++place) {
      const Eigen::Index step_a = in_a_[dim][place];
      const Eigen::Index step_b = in_b_[dim][place];
      const Eigen::Index step = target_[dim][place];
      if (step_a >= 0 && step_b >= 0 && step >= 0) {
        add(dim + 1, at_a + step_a, at_b + step_b, at + step);
      }
    }
  }

 private:
  const Part& a_;
  const Part& b_;
  Part& into_;
  Strides in_a_;
  Strides in_b_;
  Strides target_;
};

// Sum over products of a and b at all indices they hold, into the shape of `into`.
inline void add_product(const Part& a, const Part& b, Part& into) { ProductSum(a, b, into).add(); }

// Rows of a grouped product meet the weights of their own expert only.
inline Part rows_of_expert(const Part& rows, int expert, int experts) {
  Part own = rows;
  for_each(rows, [&](Eigen::Index position, const std::vector<int>& global) {
    if (expert_of(global, experts) != expert) {
      own.data[position] = 0;
    }
  });
  return own;
}

inline Part weights_of_expert(const Part& weight, std::size_t local) {
  Part one = part_of({weight.vars.begin() + 1, weight.vars.end()},
                     {weight.index.begin() + 1, weight.index.end()});
  one.data = weight.data.segment(static_cast<Eigen::Index>(local) * one.size(), one.size());
  return one;
}

inline double activated(double x) { return x + 0.5 * x * x; }
inline double activated_slope(double x) { return 1 + x; }
inline double rotation(int position) { return std::cos(0.3 * position) + 0.2; }

// Where a table of relative positions has what a distance adds to the scores of a head.
inline std::vector<int> bias_at(const Part& table, int query, int key, int head) {
  const int rows = static_cast<int>(table.index[0].size());
  return {(key - query + rows) % rows, head};
}

// Scores and softmax over all keys held up to the query. Forward gives the context before it is
// divided by the sums of the exponentials, and those: ranks with parts of the keys add up both.
// Backward reads the quotient and the sums of all keys, as fused kernels do.
struct AttentionOperands {
  const Part& q;
  const Part& k;
  const Part& v;
  bool causal = true;
  const Part* table = nullptr;  // of relative positions
};
struct AttentionForward {
  Part* context;
  Part* sums;
};
struct AttentionBackward {
  const Part* context;
  const Part* sums;
  const Part* d_context;
};
struct AttentionGradients {
  Part q, k, v;
  Part table = {};
};

// One query of one head.
class AttentionRow {
 public:
  AttentionRow(const AttentionOperands& in, const std::vector<Reader>& readers,
               const std::vector<int>& query)
      : in_(in), q_(readers[0]), k_(readers[1]), v_(readers[2]), query_(query) {
    const Indices& heads = in.q.index[2];
    const auto own = std::find(heads.begin(), heads.end(), query[2]) - heads.begin();
    kv_ = in.k.index[2][static_cast<std::size_t>(own) / (heads.size() / in.k.index[2].size())];
    for (const int t : in.k.index[1]) {
      if (in.causal && t > query[1]) {
        continue;
      }
      double score = in.table != nullptr
                         ? Reader(*in.table).at(bias_at(*in.table, query[1], t, query[2]))
                         : 0.0;
      for (const int d : in.q.index[3]) {
        score += q_.at(query_at(d)) * k_.at(key_at(t, d));
      }
      keys_.push_back(t);
      weights_.push_back(std::exp(score));
    }
  }

  void forward(const AttentionForward& out, const Reader& context, const Reader& sums) const {
    for (std::size_t key = 0; key < keys_.size(); ++key) {
      out.sums->data[sums.place(query_)] += weights_[key];
      for (const int d : in_.v.index[3]) {
        out.context->data[context.place(query_at(d))] +=
            weights_[key] * v_.at(key_at(keys_[key], d));
      }
    }
  }

  void backward(const Reader& context, const Reader& sums, const Reader& d_context,
                AttentionGradients& gradients) const {
    double mean = 0;
    for (const int d : in_.v.index[3]) {
      mean += d_context.at(query_at(d)) * context.at(query_at(d));
    }
    for (std::size_t key = 0; key < keys_.size(); ++key) {
      const double weight = weights_[key] / sums.at(query_);
      double slope = 0;
      for (const int d : in_.v.index[3]) {
        const std::vector<int> at = key_at(keys_[key], d);
        slope += d_context.at(query_at(d)) * v_.at(at);
        gradients.v.data[v_.place(at)] += weight * d_context.at(query_at(d));
      }
      const double ds = weight * (slope - mean);
      if (in_.table != nullptr) {
        gradients.table.data[Reader(*in_.table)
                                 .place(bias_at(*in_.table, query_[1], keys_[key], query_[2]))] +=
            ds;
      }
      for (const int d : in_.q.index[3]) {
        const std::vector<int> at = key_at(keys_[key], d);
        gradients.q.data[q_.place(query_at(d))] += ds * k_.at(at);
        gradients.k.data[k_.place(at)] += ds * q_.at(query_at(d));
      }
    }
  }

 private:
  std::vector<int> query_at(int d) const { return {query_[0], query_[1], query_[2], d}; }
  std::vector<int> key_at(int t, int d) const { return {query_[0], t, kv_, d}; }

  const AttentionOperands& in_;
  const Reader& q_;
  const Reader& k_;
  const Reader& v_;
  std::vector<int> query_;  // batch, position, head
  int kv_ = 0;
  std::vector<int> keys_;
  std::vector<double> weights_;
};

// Of a context, without the width of its heads.
inline Part rows_of_heads(const Part& q) {
  Part rows = part_of({q.vars.begin(), q.vars.begin() + 3}, {q.index.begin(), q.index.begin() + 3});
  rows.dims.assign(q.dims.begin(), q.dims.begin() + 3);
  return rows;
}

inline void divide_rows(const Part& sums, Part& context) {
  const Reader reader(sums);
  for_each(context, [&](Eigen::Index position, const std::vector<int>& at) {
    context.data[position] /= reader.at({at[0], at[1], at[2]});
  });
}

inline void attend(const AttentionOperands& in, const AttentionForward& out) {
  const std::vector<Reader> readers = {Reader(in.q), Reader(in.k), Reader(in.v)};
  const Reader context(*out.context);
  const Reader sums(*out.sums);
  for_each(*out.sums, [&](Eigen::Index, const std::vector<int>& query) {
    AttentionRow(in, readers, query).forward(out, context, sums);
  });
}

inline void attend_backward(const AttentionOperands& in, const AttentionBackward& saved,
                            AttentionGradients& gradients) {
  const std::vector<Reader> readers = {Reader(in.q), Reader(in.k), Reader(in.v)};
  const Reader context(*saved.context);
  const Reader sums(*saved.sums);
  const Reader d_context(*saved.d_context);
  for_each(*saved.sums, [&](Eigen::Index, const std::vector<int>& query) {
    AttentionRow(in, readers, query).backward(context, sums, d_context, gradients);
  });
}

// Sums that a norm needs of every row: of x and x^2 forward, of dy g and dy g x_hat backward.
struct RowSums {
  Eigen::ArrayXd first;
  Eigen::ArrayXd second;
};

inline Eigen::Index row_length(const Part& part) {
  return static_cast<Eigen::Index>(part.index.back().size());
}

inline RowSums row_sums(const Eigen::ArrayXd& a, const Eigen::ArrayXd& b, Eigen::Index length) {
  const Eigen::Index rows = a.size() / length;
  RowSums sums{Eigen::ArrayXd::Zero(rows), Eigen::ArrayXd::Zero(rows)};
  for (Eigen::Index row = 0; row < rows; ++row) {
    sums.first[row] = a.segment(row * length, length).sum();
    sums.second[row] = b.segment(row * length, length).sum();
  }
  return sums;
}

// Rows minus their mean (a layer norm; an RMS norm keeps it) over their root mean square.
struct Normalised {
  Eigen::ArrayXd x_hat;
  Eigen::ArrayXd inverse;  // by row
};

inline Normalised normalised(const Part& x, const RowSums& sums, double width, bool centred) {
  const Eigen::Index length = row_length(x);
  Normalised result{x.data, Eigen::ArrayXd::Zero(sums.first.size())};
  for (Eigen::Index row = 0; row < sums.first.size(); ++row) {
    const double mean = centred ? sums.first[row] / width : 0.0;
    result.inverse[row] = 1.0 / std::sqrt(sums.second[row] / width - mean * mean + 1e-3);
    result.x_hat.segment(row * length, length) =
        (x.data.segment(row * length, length) - mean) * result.inverse[row];
  }
  return result;
}

// The place in a bias of an element of what it is added to: their last dimensions are the same.
inline std::vector<int> columns_at(const std::vector<int>& global, const Part& bias) {
  return {global.end() - static_cast<std::ptrdiff_t>(bias.index.size()), global.end()};
}

// Behind its matrices a product may have as many biases.
inline bool has_biases(const Operator& op) {
  return op.kind == OpKind::Gemm && op.weights.size() > op.outputs.size();
}

// The vector of a norm at the last dimension of `part`, element by element.
inline Eigen::ArrayXd broadcast(const Part& vector, const Part& part) {
  const Eigen::Index length = vector.data.size();
  Eigen::ArrayXd values(part.data.size());
  for (Eigen::Index row = 0; row < part.data.size() / length; ++row) {
    values.segment(row * length, length) = vector.data;
  }
  return values;
}

inline Eigen::ArrayXd sum_rows(const Eigen::ArrayXd& values, Eigen::Index length) {
  Eigen::ArrayXd sum = Eigen::ArrayXd::Zero(length);
  for (Eigen::Index row = 0; row < values.size() / length; ++row) {
    sum += values.segment(row * length, length);
  }
  return sum;
}

}  // namespace orrery::plan::semantics
