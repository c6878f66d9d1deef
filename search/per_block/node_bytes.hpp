// SPDX-License-Identifier: Apache-2.0
// Nodes of the per-block search as bytes. Shares and paths that several nodes have in common are
// written once, where they are met first, and read back as one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "search/per_block/bytes.hpp"
#include "search/per_block/node.hpp"

namespace orrery::search {

using CostsOf = std::function<const MeshCosts&(std::uint32_t mesh)>;

class PerBlockNodeWriter {
 public:
  void write(ByteWriter& out, const PerBlockNode& node);

 private:
  template <typename T>
  class Once {
   public:
    // Its number, and where it is new the thing itself.
    void write(ByteWriter& out, const std::shared_ptr<const T>& shared);

   private:
    std::map<const T*, std::uint64_t> numbers_;
  };
  Once<Shares> shares_;
  Once<std::vector<PassPath>> paths_;
};

// Error where a node cannot be one of the space.
class PerBlockNodeReader {
 public:
  // `pipelines`: of the space, or those that have no bound, too.
  enum class Pipelines : std::uint8_t { Bounded, All };
  PerBlockNodeReader(const PerBlockSpace& space, CostsOf costs_of,
                     Pipelines pipelines = Pipelines::Bounded)
      : space_(space), costs_of_(std::move(costs_of)), admitted_(pipelines) {}
  PerBlockNode read(ByteReader& in);

 private:
  using Owner = std::pair<std::uint32_t, std::uint32_t>;  // mesh and pipeline
  template <typename T>
  class Once {
   public:
    template <typename Read>
    std::shared_ptr<const T> read(ByteReader& in, const Owner& owner, const Read& read_one);

   private:
    std::vector<std::pair<Owner, std::shared_ptr<const T>>> known_;
  };
  const std::vector<Pipeline>& pipelines_of(std::uint32_t mesh);

  const PerBlockSpace& space_;
  CostsOf costs_of_;
  Pipelines admitted_;
  std::map<std::uint32_t, std::vector<Pipeline>> pipelines_;
  Once<Shares> shares_;
  Once<std::vector<PassPath>> paths_;
};

}  // namespace orrery::search
