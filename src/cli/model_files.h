// The files of a model's folder besides its configuration and weights, for commands that write one.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/output_folder.h"
#include "core/status.h"

namespace hognose::cli {

// Names and bytes of those that are there: tokenizer.json, generation_config.json, ...
core::Result<std::vector<std::pair<std::string, std::string>>> ReadModelFiles(
    const std::string& folder);
core::Status CopyModelFiles(const std::string& from, const OutputFolder& to);

}  // namespace hognose::cli
