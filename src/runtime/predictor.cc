#include "runtime/predictor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/fp_env.h"
#include "io/file.h"
#include "models/registry.h"
#include "runtime/state_container.h"

namespace hognose::runtime {
namespace {

// p[i] = exp(x[i]) / sum, in double, rounded once.
void Softmax(const float* x, std::span<float> p) {
  const double max = *std::max_element(x, x + p.size());
  double sum = 0.0;
  for (size_t i = 0; i < p.size(); ++i) sum += std::exp(x[i] - max);
  for (size_t i = 0; i < p.size(); ++i) p[i] = static_cast<float>(std::exp(x[i] - max) / sum);
}

}  // namespace

core::Result<std::unique_ptr<Predictor>> Predictor::Load(const std::string& path,
                                                         const LoadOptions& options) {
  std::unique_ptr<Predictor> p(new Predictor);
  HOGNOSE_ASSIGN(p->folder_, io::OpenModelFolder(path));
  HOGNOSE_ASSIGN(p->pool_, NewPool(options.threads, options.pin));
  HOGNOSE_ASSIGN(p->model_, models::BuildSequence({p->folder_.config, path + "/config.json",
                                                   p->folder_.tensors, WeightsName(p->folder_)}));
  for (const std::string& name : p->model_.unknown_tensors) {
    const std::string message = fmt::format("{}: {}: unknown tensor", path, name);
    if (options.strict) return core::Status::Failed(message + ", want none");
    p->warnings_.push_back(message + ", not used");
  }
  const core::Exec exec{*p->pool_};
  HOGNOSE_TRY(CheckFinite(exec, p->folder_));
  HOGNOSE_ASSIGN(auto workspace, p->model_.NewWorkspace(exec, kPiece, /*exact=*/true));
  p->workspace_ = std::make_unique<models::Workspace>(std::move(workspace));
  HOGNOSE_ASSIGN(p->state_, nn::State::Create(p->model_.state_shapes()));
  const models::SequenceConfig& c = p->model_.config;
  p->features_ = {c.feature_mean, c.feature_scale};
  p->targets_ = {c.target_mean, c.target_scale};
  p->answer_.resize(p->model_.outputs());
  p->x_.resize(kPiece * p->model_.inputs());
  p->y_.resize(kPiece * p->model_.outputs());
  return p;
}

void Predictor::Predict(std::span<const double> features, std::span<float> out) {
  const size_t inputs = model_.inputs(), outputs = model_.outputs(),
               rows = features.size() / inputs;
  HOGNOSE_CHECK(rows > 0 && rows <= kPiece && out.size() == rows * outputs);
  for (size_t r = 0; r < rows; ++r) {
    features_.Apply(features.subspan(r * inputs, inputs),
                    std::span(x_).subspan(r * inputs, inputs));
  }
  {
    const core::FlushDenormals flush;
    model_.Forward(*workspace_, {x_.data(), rows, inputs, inputs}, state_,
                   {y_.data(), rows, outputs, outputs});
  }
  position_ += rows;
  for (size_t r = 0; r < rows; ++r) {
    const float* y = y_.data() + r * outputs;
    const std::span<float> to = out.subspan(r * outputs, outputs);
    if (config().classification) {
      Softmax(y, to);
      continue;
    }
    targets_.Invert({y, outputs}, answer_);
    std::transform(answer_.begin(), answer_.end(), to.begin(),
                   [](double v) { return static_cast<float>(v); });
  }
}

core::Status Predictor::WriteState(const std::string& path) const {
  return WriteStateContainer(path, {.state = state_,
                                    .logits = {},
                                    .position = position_,
                                    .model = DigestOf(folder_),
                                    .more = {}});
}

core::Status Predictor::ReadState(const std::string& path) {
  HOGNOSE_ASSIGN(const io::MappedFile file, io::MappedFile::Open(path));
  HOGNOSE_ASSIGN(const OpenedState opened, OpenStateContainer(file.bytes(), path));
  HOGNOSE_TRY(CheckStateModel(opened, DigestOf(folder_), path));
  HOGNOSE_ASSIGN(nn::State state, nn::State::Create(model_.state_shapes()));
  HOGNOSE_TRY(ReadStateLayers(opened, path, &state, {}));
  state_ = std::move(state);
  position_ = opened.position;
  return {};
}

}  // namespace hognose::runtime
