// Options whose values are read strictly: decimal numbers in a range, names that are not empty. A
// wrong value is one line that begins with the option's names: "-n/--tokens: got "x", want ...".
// An option that is given again replaces what it said before. What `value` holds is the default.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/status.h"

// CLI11 is large: only options.cc and main.cc see it.
namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace hognose::cli {

void AddInteger(CLI::App& app, const std::string& names, uint64_t* value, uint64_t min,
                uint64_t max, const std::string& help);
// Without a default: nothing is shown for it, and `value` stays empty.
void AddInteger(CLI::App& app, const std::string& names, std::optional<uint64_t>* value,
                uint64_t min, uint64_t max, const std::string& help);
void AddReal(CLI::App& app, const std::string& names, double* value, double min, double max,
             const std::string& help);
void AddReal(CLI::App& app, const std::string& names, std::optional<double>* value, double min,
             double max, const std::string& help);
// Names between commas, none of them empty or given twice.
void AddNames(CLI::App& app, const std::string& names, std::vector<std::string>* values,
              const std::string& help);
// Integers between commas.
void AddIntegers(CLI::App& app, const std::string& names, std::vector<uint64_t>* values,
                 uint64_t min, uint64_t max, const std::string& help);
// The name of a file or folder: an empty one (a shell variable that isn't set) is refused.
void AddPath(CLI::App& app, const std::string& names, std::string* path, const std::string& help);
// Any text; the last one counts, or all of them in their order.
void AddText(CLI::App& app, const std::string& names, std::optional<std::string>* text,
             const std::string& help);
void AddTexts(CLI::App& app, const std::string& names, std::vector<std::string>* texts,
              const std::string& help);
// "a,b" as {"a", "b"}; the parts may be empty.
std::vector<std::string> SplitAtCommas(const std::string& text);
void AddFlag(CLI::App& app, const std::string& names, bool* flag, const std::string& help);
// One of `words`.
void AddChoice(CLI::App& app, const std::string& names, std::string* word,
               const std::vector<std::string>& words, const std::string& help);
// "--config FILE" among a command's arguments, the first of which is the command: what that TOML
// file says comes before all of them, so that they replace it. A key is an option's long name.
core::Status ExpandConfigFile(std::vector<std::string>* arguments);

// CLI11's faults as one line that begins with the flag.
std::string DescribeParseError(const CLI::ParseError& error, const CLI::App& app);

}  // namespace hognose::cli
