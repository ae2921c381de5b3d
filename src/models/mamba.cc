// Mamba (Mamba-1). Source: A. Gu, T. Dao, "Mamba: Linear-Time Sequence Modeling with Selective
// State Spaces", 2023; checkpoints of MambaForCausalLM and of the original layout.
#include "models/mamba.h"

#include <fmt/format.h>

namespace hognose::models {
namespace {

struct Sizes {
  size_t d, e, n, k, r;
};

core::Status WrongRank(const TensorLoader& tensors, const std::string& name,
                       const core::TensorView& got, std::string_view want) {
  return core::Status::Failed(fmt::format("{}: {}: got {}, want shape {}", tensors.where(), name,
                                          core::ToString(got), want));
}

// Every size has one tensor that tells it; the config may only agree.
core::Result<Sizes> Derive(Fields& config, const TensorLoader& tensors, const std::string& prefix,
                           size_t width) {
  const std::string conv_name = prefix + "conv1d.weight", a_name = prefix + "A_log",
                    dt_name = prefix + "dt_proj.weight";
  HOGNOSE_ASSIGN(const auto conv, tensors.Find(conv_name));
  HOGNOSE_ASSIGN(const auto a, tensors.Find(a_name));
  HOGNOSE_ASSIGN(const auto dt, tensors.Find(dt_name));
  if (conv.rank != 3) return WrongRank(tensors, conv_name, conv, "[E, 1, K]");
  if (a.rank != 2) return WrongRank(tensors, a_name, a, "[E, N]");
  if (dt.rank != 2) return WrongRank(tensors, dt_name, dt, "[E, R]");
  const Sizes s{width, a.shape[0], a.shape[1], conv.shape[2], dt.shape[1]};
  HOGNOSE_TRY(Agree(config, config.Size({"intermediate_size"}), s.e, a_name));
  HOGNOSE_TRY(Agree(config, config.Size({"state_size", "ssm_cfg.d_state"}), s.n, a_name));
  HOGNOSE_TRY(Agree(config, config.Size({"conv_kernel", "ssm_cfg.d_conv"}), s.k, conv_name));
  HOGNOSE_TRY(Agree(config, config.Size({"time_step_rank", "ssm_cfg.dt_rank"}), s.r, dt_name));
  HOGNOSE_TRY(config.status());
  return s;
}

core::Result<std::unique_ptr<nn::Mixer>> BuildMixer(Fields& config, TensorLoader& tensors,
                                                    const std::string& prefix, size_t width) {
  HOGNOSE_ASSIGN(const nn::MambaWeights weights, BindMamba(config, tensors, prefix, width));
  return std::unique_ptr<nn::Mixer>(
      std::make_unique<nn::MambaMixer>(weights, /*norm_dt_b_c=*/false, /*norm_eps=*/0.0f));
}

}  // namespace

core::Result<nn::MambaWeights> BindMamba(Fields& config, TensorLoader& tensors,
                                         const std::string& prefix, size_t width) {
  HOGNOSE_ASSIGN(const Sizes s, Derive(config, tensors, prefix, width));
  const bool bias =
      config.Bool({"use_bias", "ssm_cfg.bias"}).value_or(tensors.Has(prefix + "in_proj.bias"));
  const bool conv_bias = config.Bool({"use_conv_bias", "ssm_cfg.conv_bias"})
                             .value_or(tensors.Has(prefix + "conv1d.bias"));
  HOGNOSE_TRY(config.status());
  nn::MambaWeights w;
  core::Vec<const float> conv_w, a_log;
  std::vector<TensorRow> rows = {
      {"in_proj.weight", {2 * s.e, s.d}, &w.in_proj},
      {"conv1d.weight", {s.e, 1, s.k}, &conv_w, true, &w.d.conv_w},
      {"x_proj.weight", {s.r + 2 * s.n, s.e}, &w.x_proj},
      {"dt_proj.weight", {s.e, s.r}, &w.dt_proj},
      {"dt_proj.bias", {s.e}, &w.dt_proj.bias, true, &w.dt_proj.dbias},
      {"A_log", {s.e, s.n}, &a_log, true, &w.d.a_log},
      {"D", {s.e}, &w.d_skip, true, &w.d.d_skip},
      {"out_proj.weight", {s.d, s.e}, &w.out_proj},
  };
  if (conv_bias) rows.push_back({"conv1d.bias", {s.e}, &w.conv_bias, true, &w.d.conv_bias});
  if (bias) {
    rows.push_back({"in_proj.bias", {2 * s.e}, &w.in_proj.bias, true, &w.in_proj.dbias});
    rows.push_back({"out_proj.bias", {s.d}, &w.out_proj.bias, true, &w.out_proj.dbias});
  }
  HOGNOSE_TRY(tensors.Bind(prefix, rows));
  w.conv_w = Transposed(tensors.floats(), conv_w, s.e, s.k);
  HOGNOSE_ASSIGN(const auto a, NegativeExp(tensors.floats(), a_log,
                                           fmt::format("{}: {}A_log", tensors.where(), prefix)));
  w.a = Transposed(tensors.floats(), a, s.e, s.n);
  return w;
}

const Architecture kMamba = {"mamba", "MambaForCausalLM", "Mamba1", BuildMixer};

}  // namespace hognose::models
