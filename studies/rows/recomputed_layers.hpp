// SPDX-License-Identifier: Apache-2.0
// Which layers the words of a row say are recomputed: shares of them, or so many of a stage. All
// texts are in lower case. Linear in the length of the text.
#pragma once

#include <optional>
#include <string_view>

#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// So many layers of every so many.
struct LayerShare {
  int share = 1;
  int every = 1;
};

// "every 2nd layer", "25% of layers", "1 of 3 layers"; all layers where the text says no such
// thing. "Every 2 layers" of whole ones is Megatron's uniform method, which recomputes all.
LayerShare stated_share(std::string_view detail, bool whole_layers);

// torchtitan's selective_ac_option: 2, "option 2", the number alone keep every other layer.
LayerShare share_of_option(std::string_view detail);

// "per-op", torchtitan's selective_ac_option: op, which keeps every second product.
bool names_operators_apart(std::string_view detail, bool titan);

// Of full recomputation, with what is left out of it: "disabled for last 2 layers".
LayerShare share_of_layers(const Measurement& row, std::string_view detail);

// How much of the layers runs again where FLOPs are counted with and without it: hfu over mfu is
// more than 1 by a third of it, the forward being a third of both passes. From 0 to 1.
std::optional<double> share_of_counts(const Measurement& row);

// A share of the layers in thousandths; all layers for 1.
LayerShare share_of_fraction(double fraction);

// Megatron-LM's --recompute-method block with --recompute-num-layers; 0 where all layers are meant.
int layers_of_a_stage(std::string_view detail);

// Megatron-LM's --checkpoint-num-layers until 2021 and GPT-NeoX's: the layers between two inputs
// that are kept, of which all run again ("1 layer granularity", "checkpoint interval 1 layer").
bool states_interval(std::string_view detail);

// "except last stage", "first 2 stages only": some stages recompute and others do not.
bool names_some_stages(std::string_view detail);

// Megatron's number of layers without the method that says what it counts.
bool lacks_method(std::string_view detail);

}  // namespace orrery::studies
