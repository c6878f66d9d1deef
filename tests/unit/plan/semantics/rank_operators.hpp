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

// Where elements of a space of more variables lie in an operand. Products ask for every element, so
// that indices have one place in memory.
class Projection {
 public:
  Projection(const Part& operand, const Part& space) : reader_(operand) {
    for (const Var var : operand.vars) {
      dims_.push_back(static_cast<std::size_t>(space.dim_of(var)));
    }
    own_.resize(dims_.size());
  }
  // -1: not held.
  Eigen::Index find(const std::vector<int>& global) {
    for (std::size_t dim = 0; dim < dims_.size(); ++dim) {
      own_[dim] = global[dims_[dim]];
    }
    return reader_.find(own_);
  }

 private:
  Reader reader_;
  std::vector<std::size_t> dims_;  // of the space, by dimension of the operand
  std::vector<int> own_;
};

// Sum over products of a and b at all indices they hold, into the shape of `into`.
inline void add_product(const Part& a, const Part& b, Part& into) {
  std::vector<Var> vars = a.vars;
  std::vector<Indices> index = a.index;
  for (std::size_t dim = 0; dim < b.vars.size(); ++dim) {
    if (a.dim_of(b.vars[dim]) < 0) {
      vars.push_back(b.vars[dim]);
      index.push_back(b.index[dim]);
    }
  }
  const Part space = part_of(vars, index);
  Projection in_a(a, space);
  Projection in_b(b, space);
  Projection target(into, space);
  for_each(space, [&](Eigen::Index, const std::vector<int>& global) {
    const Eigen::Index at_a = in_a.find(global);
    const Eigen::Index at_b = in_b.find(global);
    const Eigen::Index at = target.find(global);
    if (at_a >= 0 && at_b >= 0 && at >= 0) {
      into.data[at] += a.data[at_a] * b.data[at_b];
    }
  });
}

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

// Scores, softmax over all keys up to the query, context; with gradients when `d_context` is given.
// `table`: of relative positions.
struct AttentionGradients {
  Part q, k, v;
  Part table = {};
};
inline void attend(const Part& q, const Part& k, const Part& v, bool causal, Part* context,
                   const Part* d_context, AttentionGradients* gradients,
                   const Part* table = nullptr) {
  const Reader read_q(q);
  const Reader read_k(k);
  const Reader read_v(v);
  const Reader read_table(table != nullptr ? *table : q);
  const Reader place(context != nullptr ? *context : q);
  const Reader read_d(d_context != nullptr ? *d_context : q);
  const int share = static_cast<int>(q.index[2].size() / k.index[2].size());
  for (const int b : q.index[0]) {
    for (std::size_t head = 0; head < q.index[2].size(); ++head) {
      const int h = q.index[2][head];
      const int kv = k.index[2][head / static_cast<std::size_t>(share)];
      for (const int s : q.index[1]) {
        std::vector<int> keys;
        std::vector<double> weight;
        double sum = 0;
        for (const int t : k.index[1]) {
          if (causal && t > s) {
            continue;
          }
          double score = table != nullptr ? read_table.at(bias_at(*table, s, t, h)) : 0.0;
          for (const int d : q.index[3]) {
            score += read_q.at({b, s, h, d}) * read_k.at({b, t, kv, d});
          }
          keys.push_back(t);
          weight.push_back(std::exp(score));
          sum += weight.back();
        }
        for (double& value : weight) {
          value /= sum;
        }
        if (context != nullptr) {
          for (const int d : v.index[3]) {
            for (std::size_t key = 0; key < keys.size(); ++key) {
              context->data[place.place({b, s, h, d})] +=
                  weight[key] * read_v.at({b, keys[key], kv, d});
            }
          }
        }
        if (d_context == nullptr) {
          continue;
        }
        std::vector<double> slope(keys.size(), 0.0);
        double mean = 0;
        for (std::size_t key = 0; key < keys.size(); ++key) {
          for (const int d : v.index[3]) {
            const double dc = read_d.at({b, s, h, d});
            slope[key] += dc * read_v.at({b, keys[key], kv, d});
            gradients->v.data[read_v.place({b, keys[key], kv, d})] += weight[key] * dc;
          }
          mean += weight[key] * slope[key];
        }
        for (std::size_t key = 0; key < keys.size(); ++key) {
          const double ds = weight[key] * (slope[key] - mean);
          if (table != nullptr) {
            gradients->table.data[read_table.place(bias_at(*table, s, keys[key], h))] += ds;
          }
          for (const int d : q.index[3]) {
            gradients->q.data[read_q.place({b, s, h, d})] += ds * read_k.at({b, keys[key], kv, d});
            gradients->k.data[read_k.place({b, keys[key], kv, d})] += ds * read_q.at({b, s, h, d});
          }
        }
      }
    }
  }
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
