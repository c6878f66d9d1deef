// SPDX-License-Identifier: Apache-2.0
// How each training framework runs a layer and a step, from its documentation and source.
#pragma once

#include "plan/plan.hpp"

namespace orrery::studies {

plan::Execution early_megatron();
plan::Execution megatron();
plan::Execution transformer_engine();
plan::Execution zero_bubble();
plan::Execution nemo();
plan::Execution nemo_launcher();
plan::Execution nemo_early_launcher();
plan::Execution megatron_bridge();
plan::Execution fsdp();
plan::Execution sdpa_fsdp();
plan::Execution fms_fsdp();
plan::Execution torchtitan();
plan::Execution single_gpu_pytorch();
plan::Execution composer(int flash_version);
plan::Execution xla();
plan::Execution t5x();
plan::Execution nanotron();
plan::Execution pytorch_ddp();
plan::Execution deepspeed(bool zero3 = false);
plan::Execution transformers_deepspeed(bool zero3);
plan::Execution intern_evo(int flash_version);

}  // namespace orrery::studies
