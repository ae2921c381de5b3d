#include "cli/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>

#include "io/file.h"

namespace hognose::cli {
namespace {

// The number that is all of `text`: no sign where there is none, no other base, no overflow.
template <typename T>
std::optional<T> ParseNumber(std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// "-n/--tokens", or "MODEL" for a positional.
std::string OptionLabel(const CLI::Option& option) {
  std::string label;
  for (const auto& name : option.get_snames()) label += "-" + name;
  for (const auto& name : option.get_lnames()) label += (label.empty() ? "--" : "/--") + name;
  return label.empty() ? option.get_name() : label;
}

// Adds an option that `parse` reads; it returns false for a wrong value.
CLI::Option* Add(CLI::App& app, const std::string& names, const std::string& type,
                 const std::string& want, std::function<bool(const std::string&)> parse,
                 const std::string& help) {
  // Known only once the option is made, which the callback outlives.
  auto label = std::make_shared<std::string>();
  CLI::Option* option = app.add_option(
      names,
      [label, want, parse](const CLI::results_t& given) {
        const std::string& text = given.back();
        if (parse(text)) return true;
        throw CLI::ValidationError(*label, fmt::format("got \"{}\", want {}", text, want));
      },
      help);
  *label = OptionLabel(*option);
  return option->type_name(type)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

CLI::Option* AddNumber(CLI::App& app, const std::string& names,
                       const std::function<void(uint64_t)>& set, uint64_t min, uint64_t max,
                       const std::string& help) {
  const auto parse = [=](const std::string& text) {
    const auto number = ParseNumber<uint64_t>(text);
    if (!number || *number < min || *number > max) return false;
    set(*number);
    return true;
  };
  return Add(
      app, names, "INT",
      min == max ? fmt::format("{}", min) : fmt::format("an integer from {} to {}", min, max),
      parse, help);
}

CLI::Option* AddRealNumber(CLI::App& app, const std::string& names,
                           const std::function<void(double)>& set, double min, double max,
                           const std::string& help) {
  const auto parse = [=](const std::string& text) {
    const auto number = ParseNumber<double>(text);
    if (!number || !(*number >= min && *number <= max)) return false;  // NaN is in no range
    set(*number);
    return true;
  };
  return Add(app, names, "REAL", fmt::format("a number from {} to {}", min, max), parse, help);
}

// Every unknown argument is one of these two.
std::string DescribeExtra(const std::string& argument) {
  const bool flag = argument.size() > 1 && argument[0] == '-';
  return fmt::format("{}: {}", argument, flag ? "unknown flag" : "unexpected argument");
}

std::string CommandNames(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", command->get_name());
  }
  return names;
}

// The option of the chosen command that CLI11 calls `name`.
const CLI::Option* FindOption(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : app.get_subcommands()) {
    if (const CLI::Option* option = command->get_option_no_throw(name)) return option;
  }
  return app.get_option_no_throw(name);
}

}  // namespace

void AddInteger(CLI::App& app, const std::string& names, uint64_t* value, uint64_t min,
                uint64_t max, const std::string& help) {
  const auto set = [=](uint64_t number) { *value = number; };
  AddNumber(app, names, set, min, max, help)->default_str(std::to_string(*value));
}

void AddInteger(CLI::App& app, const std::string& names, std::optional<uint64_t>* value,
                uint64_t min, uint64_t max, const std::string& help) {
  const auto set = [=](uint64_t number) { *value = number; };
  AddNumber(app, names, set, min, max, help);
}

void AddReal(CLI::App& app, const std::string& names, double* value, double min, double max,
             const std::string& help) {
  const auto set = [=](double number) { *value = number; };
  AddRealNumber(app, names, set, min, max, help)->default_str(fmt::format("{}", *value));
}

void AddReal(CLI::App& app, const std::string& names, std::optional<double>* value, double min,
             double max, const std::string& help) {
  const auto set = [=](double number) { *value = number; };
  AddRealNumber(app, names, set, min, max, help);
}

std::vector<std::string> SplitAtCommas(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

void AddNames(CLI::App& app, const std::string& names, std::vector<std::string>* values,
              const std::string& help) {
  const auto parse = [=](const std::string& text) {
    values->clear();
    for (const std::string& name : SplitAtCommas(text)) {
      if (name.empty() || std::find(values->begin(), values->end(), name) != values->end()) {
        return false;
      }
      values->push_back(name);
    }
    return true;
  };
  Add(app, names, "NAME,...", "different names between commas", parse, help);
}

void AddIntegers(CLI::App& app, const std::string& names, std::vector<uint64_t>* values,
                 uint64_t min, uint64_t max, const std::string& help) {
  const auto parse = [=](const std::string& text) {
    values->clear();
    for (const std::string& part : SplitAtCommas(text)) {
      const auto number = ParseNumber<uint64_t>(part);
      if (!number || *number < min || *number > max) return false;
      values->push_back(*number);
    }
    return true;
  };
  Add(app, names, "INT,...", fmt::format("integers from {} to {} between commas", min, max), parse,
      help)
      ->default_str(fmt::format("{}", fmt::join(*values, ",")));
}

void AddPath(CLI::App& app, const std::string& names, std::string* path, const std::string& help) {
  const auto parse = [=](const std::string& text) {
    *path = text;
    return !text.empty();
  };
  // A positional's name is its type already.
  Add(app, names, names.starts_with("-") ? "PATH" : "", "a name", parse, help);
}

void AddChoice(CLI::App& app, const std::string& names, std::string* word,
               const std::vector<std::string>& words, const std::string& help) {
  const auto parse = [=](const std::string& text) {
    *word = text;
    return std::find(words.begin(), words.end(), text) != words.end();
  };
  const std::string list = fmt::format("{}", fmt::join(words, "|"));
  Add(app, names, list, list, parse, help)->default_str(*word);
}

void AddText(CLI::App& app, const std::string& names, std::optional<std::string>* text,
             const std::string& help) {
  const auto parse = [=](const std::string& given) {
    *text = given;
    return true;
  };
  Add(app, names, "TEXT", "", parse, help);
}

void AddTexts(CLI::App& app, const std::string& names, std::vector<std::string>* texts,
              const std::string& help) {
  app.add_option(names, *texts, help)->type_name("TEXT")->allow_extra_args(false);
}

void AddFlag(CLI::App& app, const std::string& names, bool* flag, const std::string& help) {
  app.add_flag(names, *flag, help);
}

core::Status ExpandConfigFile(std::vector<std::string>* arguments) {
  std::vector<std::string> expanded, rest;
  for (size_t i = 0; i < arguments->size(); ++i) {
    const std::string& argument = (*arguments)[i];
    const bool joined = argument.starts_with("--config=");
    if (!joined && (argument != "--config" || i + 1 == arguments->size())) {
      (i == 0 ? expanded : rest).push_back(argument);
      continue;
    }
    const std::string path = joined ? argument.substr(argument.find('=') + 1) : (*arguments)[++i];
    const auto text = io::ReadFile(path);
    if (!text.ok()) return core::Status::Usage("--config: " + text.status().message());
    std::istringstream file(*text);
    try {
      for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_config(file)) {
        if (!item.parents.empty()) {
          return core::Status::Usage(fmt::format("--config: {}: got the section [{}], want none",
                                                 path, fmt::join(item.parents, ".")));
        }
        const bool name = item.name.find_first_of(" \t=[]\"'") == std::string::npos;
        if (!name || item.name == "config" || item.inputs.empty() || item.inputs[0].empty()) {
          return core::Status::Usage(fmt::format(
              "--config: {}: got \"{}\", want a flag's name = a value", path, item.name));
        }
        for (const std::string& value : item.inputs) {
          if (value == "false") continue;  // a flag that isn't set
          expanded.push_back("--" + item.name);
          if (value != "true") expanded.push_back(value);
        }
      }
    } catch (const CLI::Error& error) {
      return core::Status::Usage(fmt::format("--config: {}: {}", path, error.what()));
    }
  }
  expanded.insert(expanded.end(), rest.begin(), rest.end());
  *arguments = std::move(expanded);
  return {};
}

std::string DescribeParseError(const CLI::ParseError& error, const CLI::App& app) {
  auto rest = app.remaining(/*recurse=*/true);
  std::erase(rest, "--");
  if (app.get_subcommands().empty()) {
    const std::string want = "want one of " + CommandNames(app) + " (hognose --help)";
    if (rest.empty()) return "COMMAND: got none, " + want;
    const bool flag = rest.front().starts_with("-");
    return fmt::format("{}: unknown {}, {}", rest.front(), flag ? "flag" : "command", want);
  }
  const std::string text = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !rest.empty()) {
    return DescribeExtra(rest.front());
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    if (const CLI::Option* option = FindOption(app, text.substr(0, text.find(':')))) {
      return fmt::format("{}: got no value, want {}", OptionLabel(*option),
                         option->get_type_name());
    }
  }
  return text;
}

}  // namespace hognose::cli
