// SPDX-License-Identifier: Apache-2.0
#include "topologies/nccl_xml_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <pugixml.hpp>
#include <set>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"

namespace orrery::topologies {
namespace {

constexpr std::size_t kMaxGpus = 576;
constexpr std::string_view kNvSwitchClass = "0x068000";
constexpr std::string_view kBridgeClass = "0x0604";

struct Context {
  int cpu = 0;
  double pcie = 1e9;
  std::string top_switch;
  std::string busid;
  std::string device;
};

class XmlReader {
 public:
  XmlReader(std::string_view text, std::string_view name) : text_(text), name_(name) {
    if (static_cast<std::int64_t>(text.size()) > limits::kMaxConfigFileBytes) {
      bad_input(name, "the file is too large",
                fmt::format("at most {} bytes", limits::kMaxConfigFileBytes));
    }
    const pugi::xml_parse_result result = document_.load_buffer(text.data(), text.size());
    if (!result) {
      bad_input(where(result.offset), fmt::format("not well-formed XML: {}", result.description()));
    }
    check_form();
    const pugi::xml_node root = document_.child("system");
    if (!root) {
      bad_input(name_, "no element <system>", "an NCCL topology file");
    }
    for (const pugi::xml_node cpu : root.children("cpu")) {
      read_cpu(cpu);
    }
    if (system.gpus.empty()) {
      fail(root, "no <gpu> inside a <cpu>");
    }
  }

  [[noreturn]] void fail(const pugi::xml_node& node, std::string_view message,
                         std::string_view hint = {}) const {
    bad_input(where(node.offset_debug()), message, hint);
  }

  NcclSystem system;

 private:
  std::string where(std::ptrdiff_t offset) const {
    const auto end = std::clamp<std::ptrdiff_t>(offset, 0, std::ssize(text_));
    return fmt::format("{}:{}", name_, 1 + std::count(text_.begin(), text_.begin() + end, '\n'));
  }

  // Depth and duplicate attributes, without recursion: the nesting is the file's.
  void check_form() const {
    struct Walker : pugi::xml_tree_walker {
      const XmlReader* reader = nullptr;
      bool for_each(pugi::xml_node& node) override {
        if (depth() > limits::kMaxJsonDepth) {
          reader->fail(node, "nested too deeply", fmt::format("at most {}", limits::kMaxJsonDepth));
        }
        std::set<std::string_view> names;
        for (const pugi::xml_attribute& attribute : node.attributes()) {
          if (!names.insert(attribute.name()).second) {
            reader->fail(
                node, fmt::format("attribute \"{}\" is given twice", printable(attribute.name())));
          }
        }
        return true;
      }
    } walker;
    walker.reader = this;
    const_cast<pugi::xml_document&>(document_).traverse(walker);  // pugixml's walker is not const
  }

  double number(const pugi::xml_node& node, const char* attribute, double min, double max) const {
    const std::string_view text = trim(node.attribute(attribute).value());
    double value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stop != end || !(value >= min && value <= max)) {
      fail(node, fmt::format("<{}> has {}=\"{}\"", node.name(), attribute, printable(text, 40)),
           fmt::format("a number from {:g} to {:g}", min, max));
    }
    return value;
  }

  void read_cpu(const pugi::xml_node& cpu) {
    const std::string_view maker = cpu.attribute("vendor").value();
    const std::string_view arch = cpu.attribute("arch").value();
    system.cpu_vendor = arch == "ppc64"           ? "ibm"
                        : arch == "arm64"         ? "nvidia"
                        : maker == "AuthenticAMD" ? "amd"
                                                  : "intel";
    Context context;
    context.cpu = system.sockets++;
    read_children(cpu, context);
  }

  // The depth is checked, so recursion is bounded.
  void read_children(const pugi::xml_node& parent, const Context& context) {
    for (const pugi::xml_node node : parent.children()) {
      const std::string_view name = node.name();
      if (name == "pci") {
        read_pci(node, context);
      } else if (name == "gpu") {
        read_gpu(node, context);
      } else if (name == "nic") {
        read_children(node, context);
      } else if (name == "net") {
        system.nets.push_back({number(node, "speed", 1, 1e9),
                               node.attribute("latency") ? number(node, "latency", 0, 1e6) : 0.0});
      }
    }
  }

  // "16.0 GT/s PCIe", "32 GT/s"; lanes of 8b/10b below 8 GT/s.
  double pcie_rate(const pugi::xml_node& pci) const {
    std::string_view speed = trim(pci.attribute("link_speed").value());
    double lanes = 16;
    if (pci.attribute("link_width") && !trim(pci.attribute("link_width").value()).empty()) {
      const double width = number(pci, "link_width", 0, 64);
      lanes = width > 0 ? width : 16;
    }
    if (speed.empty() || speed == "Unknown") {
      return 0.984375 * lanes;
    }
    double transfers = 0;
    const auto [stop, error] =
        std::from_chars(speed.data(), speed.data() + speed.size(), transfers);
    speed.remove_prefix(static_cast<std::size_t>(stop - speed.data()));
    if (error != std::errc() || !trim(speed).starts_with("GT/s") || transfers < 1 ||
        transfers > 1000) {
      fail(pci,
           fmt::format("link_speed=\"{}\"", printable(pci.attribute("link_speed").value(), 40)),
           "for example \"16.0 GT/s PCIe\"");
    }
    return transfers * lanes / 8 * (transfers < 8 ? 0.8 : 0.984375);
  }

  void read_pci(const pugi::xml_node& pci, const Context& parent) {
    Context context = parent;
    context.busid = to_lower(pci.attribute("busid").value());
    context.device = to_lower(pci.attribute("device").value());
    if (context.busid.empty()) {
      fail(pci, "<pci> without busid");
    }
    context.pcie = std::min(parent.pcie, pcie_rate(pci));
    const bool is_switch =
        std::string_view(pci.attribute("class").value()).starts_with(kBridgeClass);
    if (context.top_switch.empty() && is_switch) {
      context.top_switch = context.busid;
    }
    read_children(pci, context);
  }

  void read_gpu(const pugi::xml_node& node, const Context& context) {
    if (system.gpus.size() == kMaxGpus) {
      fail(node, "too many GPUs", fmt::format("at most {}", kMaxGpus));
    }
    if (context.busid.empty()) {
      fail(node, "<gpu> outside a <pci>");
    }
    for (const NcclGpu& other : system.gpus) {
      if (other.busid == context.busid) {
        fail(node, fmt::format("a second GPU at {}", printable(context.busid, 40)));
      }
    }
    NcclGpu gpu;
    gpu.busid = context.busid;
    gpu.device = context.device;
    gpu.sm = static_cast<int>(number(node, "sm", 1, 2000));
    gpu.amd = static_cast<bool>(node.attribute("gcn"));
    gpu.pcie = context.pcie;
    gpu.cpu = context.cpu;
    gpu.top_switch = context.top_switch;
    for (const pugi::xml_node link : node.children()) {
      const std::string_view kind = link.name();
      if (kind == "c2c") {
        gpu.c2c += number(link, "bw", 0, 1e7) / 1000 * number(link, "count", 1, 1024);
      } else if (kind == "nvlink" || kind == "xgmi") {
        const int count = static_cast<int>(number(link, "count", 1, 1024));
        const std::string target = to_lower(link.attribute("target").value());
        if (target.empty()) {
          fail(link, fmt::format("<{}> without target", kind));
        }
        if (kNvSwitchClass == link.attribute("tclass").value()) {
          gpu.switch_links += count;
        }
        gpu.links[target] += count;
      }
    }
    system.gpus.push_back(std::move(gpu));
  }

  std::string_view text_;
  std::string_view name_;
  pugi::xml_document document_;
};

}  // namespace

NcclSystem read_nccl_system(std::string_view text, std::string_view name) {
  return std::move(XmlReader(text, name).system);
}

}  // namespace orrery::topologies
