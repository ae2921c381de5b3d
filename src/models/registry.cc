#include "models/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models/architecture.h"

namespace hognose::models {
namespace {

constexpr const Architecture* kArchitectures[] = {&kMamba, &kMamba2, &kFalconMamba};

bool Has(const core::Value& config, std::string_view name) {
  const core::Value* value = config.Find(name);
  return value != nullptr && !value->is_null();
}

// A config of the original layout has d_model at the top and no class name.
bool IsOriginal(const core::Value& config) {
  return Has(config, "d_model") && !Has(config, "architectures") && !Has(config, "model_type");
}

// The original layout as one object: a field of ssm_cfg becomes "ssm_cfg.<name>".
core::Value Flatten(const core::Value& config) {
  core::Value::Object flat = *config.AsObject();
  const core::Value* ssm = config.Find("ssm_cfg");
  if (IsOriginal(config) && ssm != nullptr && ssm->AsObject() != nullptr) {
    for (const auto& [name, value] : *ssm->AsObject()) flat.emplace_back("ssm_cfg." + name, value);
  }
  return flat;
}

core::Status Unknown(std::string_view where, std::string_view field, std::string_view got) {
  return core::Status::Failed(fmt::format("{}: {}: got \"{}\", want one of {}", where, field, got,
                                          fmt::join(Architectures(), ", ")));
}

core::Result<const Architecture*> ChooseByName(const Fields& config, std::string_view field,
                                               std::string_view name) {
  for (const auto* architecture : kArchitectures) {
    if (name == architecture->class_name || name == architecture->name) return architecture;
  }
  return Unknown(config.where(), field, name);
}

core::Result<const Architecture*> Choose(const core::Value& config, Fields& fields) {
  if (const core::Value* names = config.Find("architectures"); names != nullptr) {
    const auto* array = names->AsArray();
    if (array != nullptr && array->size() == 1 && (*array)[0].AsString() != nullptr) {
      return ChooseByName(fields, "architectures", *(*array)[0].AsString());
    }
    if (!names->is_null() && (array == nullptr || !array->empty())) {
      fields.Fault("architectures", *names, "an array of one string");
      return fields.status();
    }
  }
  if (const auto type = fields.Text("model_type")) return ChooseByName(fields, "model_type", *type);
  HOGNOSE_TRY(fields.status());
  if (!IsOriginal(config)) {
    return core::Status::Failed(
        fmt::format("{}: architectures: got nothing, want one of {} (or the original layout with "
                    "d_model and ssm_cfg)",
                    fields.where(), fmt::join(Architectures(), ", ")));
  }
  const std::string layer = fields.Text("ssm_cfg.layer").value_or("Mamba1");
  for (const auto* architecture : kArchitectures) {
    if (layer == architecture->original_layer) return architecture;
  }
  return core::Status::Failed(
      fmt::format("{}: ssm_cfg.layer: got \"{}\", want Mamba1 or Mamba2", fields.where(), layer));
}

// Parts of the original layout that no block here has.
core::Status RefuseUnsupported(const core::Value& config, Fields& fields) {
  for (const std::string_view name : {"hidden_act", "ssm_cfg.activation"}) {
    const auto act = fields.Text(name);
    if (!act || *act == "silu" || *act == "swish") continue;
    return core::Status::Failed(
        fmt::format("{}: {}: got \"{}\", want silu", fields.where(), name, *act));
  }
  if (!IsOriginal(config)) return fields.status();
  if (const auto* ssm = config.Find("ssm_cfg"); Has(config, "ssm_cfg") && !ssm->AsObject()) {
    fields.Fault("ssm_cfg", *ssm, "an object");
  }
  if (fields.Bool({"rms_norm"}) == false) {
    return core::Status::Failed(
        fmt::format("{}: rms_norm: got false (LayerNorm), want true", fields.where()));
  }
  if (const auto size = fields.Number("d_intermediate").value_or(0.0); size != 0.0) {
    return core::Status::Failed(
        fmt::format("{}: d_intermediate: got {} (MLP blocks), want 0", fields.where(), size));
  }
  if (!fields.Ints("attn_layer_idx").empty()) {
    return core::Status::Failed(
        fmt::format("{}: attn_layer_idx: got attention layers, want none", fields.where()));
  }
  return fields.status();
}

struct Names {
  std::string embedding;
  std::string prefix;
};

core::Result<Names> FindEmbedding(const TensorLoader& tensors) {
  const Names kPublished[] = {{"backbone.embeddings.weight", "backbone."},
                              {"backbone.embedding.weight", "backbone."},
                              {"embeddings.weight", ""}};
  for (const auto& names : kPublished) {
    if (tensors.Has(names.embedding)) return names;
  }
  return core::Status::Failed(
      fmt::format("{}: the embedding is missing, want one of backbone.embeddings.weight, "
                  "backbone.embedding.weight, embeddings.weight",
                  tensors.where()));
}

// The head: its own matrix where there is one, else the embedding unless the config says untied.
core::Status BindHead(Fields& fields, TensorLoader& tensors, LanguageModel* model) {
  const auto tie = fields.Bool({"tie_word_embeddings", "tie_embeddings"});
  HOGNOSE_TRY(fields.status());
  model->tied = !tensors.Has("lm_head.weight");
  if (!model->tied) {
    HOGNOSE_ASSIGN(const auto head, tensors.Find("lm_head.weight"));
    if (head.rank != 2) {
      return core::Status::Failed(fmt::format("{}: lm_head.weight: got {}, want shape [V, D]",
                                              tensors.where(), core::ToString(head)));
    }
    const size_t rows = head.shape[0];
    model->head.dw = tensors.Gradient("lm_head.weight");
    return tensors.Bind("",
                        {{"lm_head.weight", {rows, model->width()}, &model->head.w},
                         {"lm_head.bias", {rows}, &model->head.bias, false, &model->head.dbias}});
  }
  if (tie == false) {
    return core::Status::Failed(
        fmt::format("{}: lm_head.weight: the tensor is missing, and {} says "
                    "that the embedding is not tied",
                    tensors.where(), fields.where()));
  }
  model->head.w = model->embedding;
  model->head.dw = model->dembedding;
  return {};
}

core::Status BindVocabulary(Fields& fields, TensorLoader& tensors, const Names& names,
                            LanguageModel* model) {
  HOGNOSE_ASSIGN(const auto found, tensors.Find(names.embedding));
  if (found.rank != 2 || found.elements() == 0) {
    return core::Status::Failed(fmt::format("{}: {}: got {}, want shape [V, D]", tensors.where(),
                                            names.embedding, core::ToString(found)));
  }
  HOGNOSE_TRY(tensors.Bind("", {{names.embedding,
                                 {found.shape[0], found.shape[1]},
                                 &model->embedding,
                                 true,
                                 &model->dembedding}}));
  HOGNOSE_TRY(
      Agree(fields, fields.Size({"hidden_size", "d_model"}), found.shape[1], names.embedding));
  HOGNOSE_TRY(BindHead(fields, tensors, model));
  const auto vocab = fields.Size({"vocab_size"});
  const size_t rows = std::min(found.shape[0], model->logits_size());
  if (vocab && vocab->value > rows) {
    return core::Status::Failed(
        fmt::format("{}: vocab_size: got {}, want at most {} as the shape of "
                    "{} says",
                    fields.where(), vocab->value, rows, names.embedding));
  }
  model->vocab = vocab ? vocab->value : rows;
  return fields.status();
}

// Layers are counted in the tensors; the config may only agree. Without its word, a layer whose
// norm is missing must not end the count: no tensor may belong to a layer behind the last one.
core::Result<size_t> CountLayers(Fields& fields, const TensorLoader& tensors,
                                 const std::string& prefix) {
  size_t count = 0;
  while (tensors.Has(fmt::format("{}layers.{}.norm.weight", prefix, count))) ++count;
  const auto layers = fields.Size({"num_hidden_layers", "n_layer", "n_layers"});
  HOGNOSE_TRY(fields.status());
  const bool missing = layers ? layers->value > count : tensors.HasLayerFrom(prefix, count);
  if (count == 0 || missing) {
    return core::Status::Failed(fmt::format("{}: {}layers.{}.norm.weight: the tensor is missing",
                                            tensors.where(), prefix, count));
  }
  if (layers && layers->value != count) {
    return core::Status::Failed(fmt::format("{}: {}: got {}, want {}, the number of layers in {}",
                                            fields.where(), layers->name, layers->value, count,
                                            tensors.where()));
  }
  return count;
}

core::Result<Backbone> BuildBackbone(const Architecture& architecture, Fields& fields,
                                     TensorLoader& tensors, const std::string& prefix,
                                     size_t width) {
  Backbone backbone;
  backbone.width = width;
  backbone.norm_eps = fields.Epsilon("layer_norm_epsilon").value_or(1e-5f);
  HOGNOSE_ASSIGN(const size_t layers, CountLayers(fields, tensors, prefix));
  for (size_t i = 0; i < layers; ++i) {
    const std::string layer = fmt::format("{}layers.{}.", prefix, i);
    Block block;
    HOGNOSE_TRY(
        tensors.Bind(layer, {{"norm.weight", {width}, &block.norm_w, true, &block.dnorm_w}}));
    HOGNOSE_ASSIGN(block.mixer, architecture.build_mixer(fields, tensors, layer + "mixer.", width));
    backbone.blocks.push_back(std::move(block));
  }
  HOGNOSE_TRY(tensors.Bind(
      prefix, {{"norm_f.weight", {width}, &backbone.norm_f, true, &backbone.dnorm_f}}));
  return backbone;
}

}  // namespace

std::vector<std::string_view> Architectures() {
  std::vector<std::string_view> names;
  for (const auto* architecture : kArchitectures) names.push_back(architecture->class_name);
  return names;
}

namespace {

core::Status WantObject(const Checkpoint& checkpoint) {
  if (checkpoint.config.AsObject() != nullptr) return {};
  return core::Status::Failed(fmt::format("{}: got {}, want an object", checkpoint.config_name,
                                          checkpoint.config.TypeName()));
}

// Both ends must be what the names say.
core::Status BindEnds(const Fields& fields, TensorLoader& tensors, SequenceModel* model) {
  HOGNOSE_ASSIGN(const auto encoder, tensors.Find("encoder.weight"));
  if (encoder.rank != 2) {
    return core::Status::Failed(fmt::format("{}: encoder.weight: got {}, want shape [D, F]",
                                            tensors.where(), core::ToString(encoder)));
  }
  const size_t width = encoder.shape[0], inputs = model->config.features.size(),
               outputs = model->config.outputs();
  if (encoder.shape[1] != inputs) {
    return core::Status::Failed(
        fmt::format("{}: encoder.weight: got {}, want {} columns, one for "
                    "each of the features of {}",
                    tensors.where(), core::ToString(encoder), inputs, fields.where()));
  }
  nn::Linear &e = model->encoder, &h = model->head;
  return tensors.Bind("", {{"encoder.weight", {width, inputs}, &e},
                           {"encoder.bias", {width}, &e.bias, true, &e.dbias},
                           {"head.weight", {outputs, width}, &h},
                           {"head.bias", {outputs}, &h.bias, true, &h.dbias}});
}

}  // namespace

core::Result<LanguageModel> Build(const Checkpoint& checkpoint) {
  HOGNOSE_TRY(WantObject(checkpoint));
  if (IsSequenceConfig(checkpoint.config)) {
    return core::Status::Failed(
        fmt::format("{}: architectures: got {}, want a language model; `hognose predict` and "
                    "`hognose train --task` take this one",
                    checkpoint.config_name, kSequenceClass));
  }
  const core::Value config = Flatten(checkpoint.config);
  Fields fields(config, checkpoint.config_name);
  HOGNOSE_ASSIGN(const Architecture* architecture, Choose(config, fields));
  HOGNOSE_TRY(RefuseUnsupported(config, fields));
  LanguageModel model;
  model.architecture = architecture->name;
  TensorLoader tensors(checkpoint.tensors, model.floats, checkpoint.weights_name,
                       checkpoint.gradients, checkpoint.adapter_scale);
  HOGNOSE_ASSIGN(const Names names, FindEmbedding(tensors));
  HOGNOSE_TRY(BindVocabulary(fields, tensors, names, &model));
  HOGNOSE_ASSIGN(model.backbone,
                 BuildBackbone(*architecture, fields, tensors, names.prefix, model.width()));
  HOGNOSE_TRY(fields.status());
  model.unknown_tensors = tensors.Unused();
  return model;
}

core::Result<SequenceModel> BuildSequence(const Checkpoint& checkpoint) {
  HOGNOSE_TRY(WantObject(checkpoint));
  const std::string& where = checkpoint.config_name;
  if (!IsSequenceConfig(checkpoint.config)) {
    return core::Status::Failed(
        fmt::format("{}: architectures: got no {}, want a regression or classification model; "
                    "`hognose run` takes a language model",
                    where, kSequenceClass));
  }
  Fields fields(checkpoint.config, where);
  const auto type = fields.Text("model_type");
  HOGNOSE_TRY(fields.status());
  HOGNOSE_ASSIGN(const Architecture* architecture,
                 ChooseByName(fields, "model_type", type.value_or("")));
  HOGNOSE_TRY(RefuseUnsupported(checkpoint.config, fields));
  SequenceModel model;
  model.architecture = architecture->name;
  HOGNOSE_ASSIGN(model.config, SequenceConfig::Read(checkpoint.config, where));
  TensorLoader tensors(checkpoint.tensors, model.floats, checkpoint.weights_name,
                       checkpoint.gradients);
  HOGNOSE_TRY(BindEnds(fields, tensors, &model));
  HOGNOSE_TRY(Agree(fields, fields.Size({"hidden_size"}), model.width(), "encoder.weight"));
  HOGNOSE_ASSIGN(model.backbone,
                 BuildBackbone(*architecture, fields, tensors, "backbone.", model.width()));
  HOGNOSE_TRY(fields.status());
  model.unknown_tensors = tensors.Unused();
  return model;
}

}  // namespace hognose::models
