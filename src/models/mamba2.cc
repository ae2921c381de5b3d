// Mamba-2. Source: T. Dao, A. Gu, "Transformers are SSMs", 2024; checkpoints of Mamba2ForCausalLM
// and of the original layout.
#include "nn/mamba2.h"

#include <fmt/format.h>

#include <limits>

#include "models/architecture.h"

namespace hognose::models {
namespace {

struct Sizes {
  size_t d, inner, h, p, g, n, k;
  size_t conv() const { return inner + 2 * g * n; }
};

core::Status Failed(const TensorLoader& tensors, const std::string& name,
                    const core::TensorView& got, const std::string& want) {
  return core::Status::Failed(
      fmt::format("{}: {}: got {}, want {}", tensors.where(), name, core::ToString(got), want));
}

// G and N: the tensors tell only their product `bc`.
core::Status DeriveGroups(Fields& config, size_t bc, const std::string& conv_name, Sizes* s) {
  const auto groups = config.Size({"n_groups", "ssm_cfg.ngroups"});
  const auto states = config.Size({"state_size", "ssm_cfg.d_state"});
  HOGNOSE_TRY(config.status());
  if (states && groups && states->value * groups->value != bc) {
    return core::Status::Failed(fmt::format(
        "{}: {}: got {}, {}: got {}, want a product of {} as the shape of {} says", config.where(),
        groups->name, groups->value, states->name, states->value, bc, conv_name));
  }
  s->n = states ? states->value : bc / (groups ? groups->value : 1);
  s->g = groups ? groups->value : bc / s->n;
  if (s->n != 0 && s->g * s->n == bc) return {};
  const SizeField field = states ? *states : *groups;  // without both, 1 group always fits
  return core::Status::Failed(
      fmt::format("{}: {}: got {}, want a divisor of {} as the shape of {} says", config.where(),
                  field.name, field.value, bc, conv_name));
}

core::Result<Sizes> Derive(Fields& config, const TensorLoader& tensors, const std::string& prefix,
                           size_t width) {
  const std::string out_name = prefix + "out_proj.weight", conv_name = prefix + "conv1d.weight",
                    a_name = prefix + "A_log";
  HOGNOSE_ASSIGN(const auto out, tensors.Find(out_name));
  HOGNOSE_ASSIGN(const auto conv, tensors.Find(conv_name));
  HOGNOSE_ASSIGN(const auto a, tensors.Find(a_name));
  if (out.rank != 2) return Failed(tensors, out_name, out, "shape [D, H P]");
  if (conv.rank != 3) return Failed(tensors, conv_name, conv, "shape [H P + 2 G N, 1, K]");
  if (a.rank != 1 || a.shape[0] == 0) return Failed(tensors, a_name, a, "shape [H]");
  Sizes s{};
  s.d = width;
  s.inner = out.shape[1];
  s.h = a.shape[0];
  s.k = conv.shape[2];
  if (s.inner == 0 || s.inner % s.h != 0) {
    return Failed(tensors, out_name, out,
                  fmt::format("columns that are a multiple of the {} heads of {}", s.h, a_name));
  }
  s.p = s.inner / s.h;
  if (conv.shape[0] <= s.inner || (conv.shape[0] - s.inner) % 2 != 0) {
    return Failed(tensors, conv_name, conv,
                  fmt::format("{} + 2 G N rows as {} says", s.inner, out_name));
  }
  HOGNOSE_TRY(DeriveGroups(config, (conv.shape[0] - s.inner) / 2, conv_name, &s));
  HOGNOSE_TRY(Agree(config, config.Size({"num_heads"}), s.h, a_name));
  HOGNOSE_TRY(Agree(config, config.Size({"head_dim", "ssm_cfg.headdim"}), s.p, out_name));
  HOGNOSE_TRY(Agree(config, config.Size({"conv_kernel", "ssm_cfg.d_conv"}), s.k, conv_name));
  HOGNOSE_TRY(config.status());
  if (s.h % s.g != 0) {
    const auto groups = config.Size({"n_groups", "ssm_cfg.ngroups"});
    return core::Status::Failed(fmt::format("{}: {}: got {}, want a divisor of the {} heads of {}",
                                            config.where(), groups ? groups->name : "n_groups", s.g,
                                            s.h, a_name));
  }
  return s;
}

core::Result<nn::Mamba2Options> ReadOptions(Fields& config, const Sizes& s) {
  nn::Mamba2Options o;
  o.heads = s.h;
  o.head_dim = s.p;
  o.groups = s.g;
  o.states = s.n;
  const auto limits = config.Limits({"time_step_limit", "ssm_cfg.dt_limit"});
  std::tie(o.dt_min, o.dt_max) =
      limits.value_or(std::pair{0.0f, std::numeric_limits<float>::infinity()});
  // Published configs of Mamba2ForCausalLM carry norm_before_gate too, but nothing reads it there:
  // the gate always comes first.
  o.normalize = config.Bool({"ssm_cfg.rmsnorm"}).value_or(true);
  const bool norm_first = o.normalize && config.Bool({"ssm_cfg.norm_before_gate"}).value_or(false);
  o.gate = norm_first ? kernels::Gate::kAfterNorm : kernels::Gate::kBeforeNorm;
  o.norm_eps = config.Epsilon("layer_norm_epsilon").value_or(1e-5f);
  HOGNOSE_TRY(config.status());
  return o;
}

// One value a head, or one a channel (the original layout's D_has_hdim), as one a channel.
core::Result<core::Vec<const float>> BindSkip(TensorLoader& tensors, const std::string& prefix,
                                              const Sizes& s) {
  HOGNOSE_ASSIGN(const auto tensor, tensors.Find(prefix + "D"));
  const bool per_channel = tensor.rank == 1 && tensor.shape[0] == s.inner;
  core::Vec<const float> skip;
  HOGNOSE_TRY(tensors.Bind(prefix, {{"D", {per_channel ? s.inner : s.h}, &skip}}));
  if (per_channel) return skip;
  const core::Vec<float> repeated = tensors.floats().New(s.inner);
  for (size_t i = 0; i < s.inner; ++i) repeated[i] = skip[i / s.p];
  return core::Vec<const float>(repeated);
}

core::Result<std::unique_ptr<nn::Mixer>> BuildMixer(Fields& config, TensorLoader& tensors,
                                                    const std::string& prefix, size_t width) {
  HOGNOSE_ASSIGN(const Sizes s, Derive(config, tensors, prefix, width));
  HOGNOSE_ASSIGN(const nn::Mamba2Options options, ReadOptions(config, s));
  const bool bias =
      config.Bool({"use_bias", "ssm_cfg.bias"}).value_or(tensors.Has(prefix + "in_proj.bias"));
  const bool conv_bias = config.Bool({"use_conv_bias", "ssm_cfg.conv_bias"})
                             .value_or(tensors.Has(prefix + "conv1d.bias"));
  HOGNOSE_TRY(config.status());
  nn::Mamba2Weights w;
  core::Vec<const float> conv_w, a_log;
  std::vector<TensorRow> rows = {
      {"in_proj.weight", {s.inner + s.conv() + s.h, s.d}, &w.in_proj},
      {"conv1d.weight", {s.conv(), 1, s.k}, &conv_w, true, &w.d.conv_w},
      {"dt_bias", {s.h}, &w.dt_bias, true, &w.d.dt_bias},
      {"A_log", {s.h}, &a_log, true, &w.d.a_log},
      {"out_proj.weight", {s.d, s.inner}, &w.out_proj},
  };
  if (options.normalize) rows.push_back({"norm.weight", {s.inner}, &w.norm_w, true, &w.d.norm_w});
  if (conv_bias) rows.push_back({"conv1d.bias", {s.conv()}, &w.conv_bias, true, &w.d.conv_bias});
  if (bias) {
    rows.push_back(
        {"in_proj.bias", {s.inner + s.conv() + s.h}, &w.in_proj.bias, true, &w.in_proj.dbias});
    rows.push_back({"out_proj.bias", {s.d}, &w.out_proj.bias, true, &w.out_proj.dbias});
  }
  HOGNOSE_TRY(tensors.Bind(prefix, rows));
  w.conv_w = Transposed(tensors.floats(), conv_w, s.conv(), s.k);
  HOGNOSE_ASSIGN(w.d_skip, BindSkip(tensors, prefix, s));
  w.d.d_skip = tensors.Gradient(prefix + "D");
  HOGNOSE_ASSIGN(w.a, NegativeExp(tensors.floats(), a_log,
                                  fmt::format("{}: {}A_log", tensors.where(), prefix)));
  return std::unique_ptr<nn::Mixer>(std::make_unique<nn::Mamba2Mixer>(w, options));
}

}  // namespace

const Architecture kMamba2 = {"mamba2", "Mamba2ForCausalLM", "Mamba2", BuildMixer};

}  // namespace hognose::models
