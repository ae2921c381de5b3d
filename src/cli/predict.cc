// hognose predict: the answers of a regression or classification model to the rows of a table.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>

#include "cli/command.h"
#include "cli/options.h"
#include "core/function_ref.h"
#include "io/file.h"
#include "io/npy.h"
#include "runtime/predictor.h"
#include "train/table.h"

namespace hognose::cli {
namespace {

using models::SequenceConfig;

struct PredictOptions {
  CommonOptions common;
  std::string model, data, out, state_in, state_out;
};

// Takes finished lines; false once nothing more can be written.
using LineSink = core::FunctionRef<bool(std::string_view)>;

// A cell of CSV, in quotes where it needs them.
std::string Quoted(const std::string& cell) {
  if (cell.find_first_of(",\"\r\n") == std::string::npos) return cell;
  std::string text = "\"";
  for (const char c : cell) text += c == '"' ? "\"\"" : std::string(1, c);
  return text + "\"";
}

// Collects rows, answers them piece by piece and prints.
class Answers {
 public:
  // `sink` must outlive it.
  Answers(runtime::Predictor& predictor, std::string input, LineSink sink)
      : predictor_(predictor), input_(std::move(input)), sink_(sink) {}

  // What a data file must and may have as columns.
  train::RowOptions Columns() const {
    const SequenceConfig& c = predictor_.config();
    return {.time = c.time, .columns = c.features, .ignored = c.targets};
  }
  void Header();
  // The place for a row's features; Add() counts it in.
  std::span<double> Next() {
    features_.resize((count() + 1) * inputs());
    return std::span(features_).last(inputs());
  }
  // `where`: "line 7", for messages.
  core::Status Add(std::string time, std::string where);
  core::Status Flush();

  bool open() const { return open_ && !Interrupted(); }
  size_t rows() const { return rows_; }

 private:
  size_t inputs() const { return predictor_.model().inputs(); }
  size_t count() const { return times_.size(); }
  void Line(std::span<const float> y, std::string* text) const;

  runtime::Predictor& predictor_;
  std::string input_;
  LineSink sink_;
  std::vector<double> features_;
  std::vector<std::string> times_;
  std::vector<std::string> wheres_;  // of the rows in the input
  size_t rows_ = 0;
  bool open_ = true;
};

void Answers::Header() {
  const SequenceConfig& c = predictor_.config();
  std::vector<std::string> names;
  if (!c.time.empty()) names.push_back(Quoted(c.time));
  for (const auto& target : c.targets) names.push_back(Quoted(target));
  for (size_t k = 0; k < c.classes; ++k) {
    names.push_back(Quoted(fmt::format("{}_p{}", c.targets[0], k)));
  }
  open_ = sink_(fmt::format("{}\n", fmt::join(names, ",")));
}

core::Status Answers::Add(std::string time, std::string where) {
  times_.push_back(std::move(time));
  wheres_.push_back(std::move(where));
  return count() == runtime::Predictor::kPiece ? Flush() : core::Status();
}

void Answers::Line(std::span<const float> y, std::string* text) const {
  if (predictor_.config().classification) {
    fmt::format_to(std::back_inserter(*text), "{},",
                   std::max_element(y.begin(), y.end()) - y.begin());
  }
  for (size_t o = 0; o < y.size(); ++o) {
    fmt::format_to(std::back_inserter(*text), "{}{}", y[o], o + 1 < y.size() ? "," : "\n");
  }
}

core::Status Answers::Flush() {
  const size_t rows = count(), outputs = predictor_.model().outputs();
  if (rows == 0) return {};
  std::vector<float> y(rows * outputs);
  predictor_.Predict(std::span(features_).first(rows * inputs()), y);
  std::string text;
  for (size_t r = 0; r < rows; ++r) {
    const std::span<const float> row = std::span(y).subspan(r * outputs, outputs);
    if (!std::all_of(row.begin(), row.end(), [](float v) { return std::isfinite(v); })) {
      return core::Status::Failed(
          fmt::format("{}: {}: got a prediction that isn't finite, want features in the range that "
                      "the model was trained on",
                      input_, wheres_[r]));
    }
    if (!predictor_.config().time.empty()) text += times_[r] + ",";
    Line(row, &text);
  }
  rows_ += rows;
  times_.clear();
  wheres_.clear();
  open_ = sink_(text);
  return {};
}

// The parser of a CSV's rows and where the time stands in them.
struct Csv {
  train::RowParser parser;
  size_t time = SIZE_MAX;

  static core::Result<Csv> Create(const train::CsvRecord& header, const std::string& where,
                                  const train::RowOptions& options) {
    HOGNOSE_ASSIGN(auto parser, train::RowParser::Create(header, where, options));
    Csv csv{.parser = std::move(parser)};
    for (size_t i = 0; i < header.cells.size(); ++i) {
      if (!options.time.empty() && train::Trim(header.cells[i]) == options.time) csv.time = i;
    }
    return csv;
  }
  core::Status Add(const train::CsvRecord& record, Answers& answers) {
    HOGNOSE_TRY(parser.Parse(record, answers.Next()));
    return answers.Add(time == SIZE_MAX ? "" : Quoted(record.cells[time]),
                       fmt::format("line {}", record.line));
  }
};

core::Status Empty(const std::string& where) {
  return core::Status::Failed(where + ": got an empty file, want a header and rows");
}

core::Status AnswerCsv(std::string_view text, const std::string& path, Answers& answers) {
  train::CsvReader reader(text, path);
  train::CsvRecord record;
  HOGNOSE_ASSIGN(const bool header, reader.Next(&record));
  if (!header) return Empty(path);
  HOGNOSE_ASSIGN(Csv csv, Csv::Create(record, path, answers.Columns()));
  answers.Header();
  while (answers.open()) {
    HOGNOSE_ASSIGN(const bool more, reader.Next(&record));
    if (!more) return {};
    HOGNOSE_TRY(csv.Add(record, answers));
  }
  return {};
}

core::Status AnswerNpy(const std::string& path, Answers& answers) {
  HOGNOSE_ASSIGN(const train::Table table,
                 train::ReadTable(path, train::DataFormat::kNpy, answers.Columns()));
  answers.Header();
  for (size_t r = 0; r < table.rows && answers.open(); ++r) {
    std::ranges::copy(table.row(r), answers.Next().begin());
    HOGNOSE_TRY(answers.Add(table.time.empty() ? "" : fmt::format("{}", table.time[r]),
                            fmt::format("row {}", r)));
  }
  return {};
}

core::Status AnswerFile(const std::string& path, Answers& answers) {
  HOGNOSE_ASSIGN(const io::MappedFile file, io::MappedFile::Open(path));
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  if (io::LooksLikeNpy(path, text)) return AnswerNpy(path, answers);
  return AnswerCsv(text, path, answers);
}

// Lines of standard input as they come, each with its end.
class Lines {
 public:
  // False at the end and after Ctrl-C.
  core::Result<bool> Next(std::string* line) {
    constexpr size_t kLongest = size_t{1} << 26;
    for (;;) {
      const size_t end = buffer_.find('\n', seen_);
      if (end != std::string::npos || (done_ && !buffer_.empty())) {
        const size_t size = std::min(end, buffer_.size() - 1) + 1;
        *line = buffer_.substr(0, size);
        buffer_.erase(0, size);
        seen_ = 0;
        return true;
      }
      if (done_) return false;
      seen_ = buffer_.size();
      if (seen_ > kLongest) {
        return core::Status::Failed(fmt::format(
            "standard input: got a line of more than {} bytes, want rows of a table", kLongest));
      }
      char bytes[1 << 16];
      const auto got = ReadSome(bytes);
      if (!got.ok() && Interrupted()) return false;
      HOGNOSE_TRY(got.status());
      done_ = *got == 0;
      buffer_.append(bytes, *got);
    }
  }

 private:
  std::string buffer_;
  size_t seen_ = 0;  // bytes of it without a line's end
  bool done_ = false;
};

// A line of its own as a record.
core::Result<train::CsvRecord> Record(const std::string& line, size_t number) {
  train::CsvReader reader(line, "standard input", number);
  train::CsvRecord record{.cells = {""}, .line = number};
  HOGNOSE_TRY(reader.Next(&record).status());
  return record;
}

core::Status AnswerStream(Answers& answers) {
  Lines lines;
  std::string line;
  HOGNOSE_ASSIGN(const bool header, lines.Next(&line));
  if (!header) return Interrupted() ? core::Status() : Empty("standard input");
  HOGNOSE_ASSIGN(const auto names, Record(line, 1));
  HOGNOSE_ASSIGN(Csv csv, Csv::Create(names, "standard input", answers.Columns()));
  answers.Header();
  size_t blank = 0;  // a blank line: no row if only such ones follow
  for (size_t number = 2; answers.open(); ++number) {
    HOGNOSE_ASSIGN(const bool more, lines.Next(&line));
    if (!more) return {};
    const bool is_blank = line == "\n" || line == "\r\n";
    if (is_blank && blank == 0) blank = number;
    if (is_blank) continue;
    if (blank != 0) return csv.Add({.cells = {""}, .line = blank}, answers);
    HOGNOSE_ASSIGN(const auto record, Record(line, number));
    HOGNOSE_TRY(csv.Add(record, answers));
    HOGNOSE_TRY(answers.Flush());
  }
  return {};
}

core::Status CheckOptions(const PredictOptions& o) {
  if (o.model.empty()) return core::Status::Usage("MODEL: got none, want a model's folder");
  if (o.data.empty()) {
    return core::Status::Usage("--data: got none, want a table (- for standard input)");
  }
  if (o.common.json && (o.out.empty() || o.out == "-")) {
    return core::Status::Usage("--json: got no --out, want a file for the answers");
  }
  if (!o.state_out.empty()) HOGNOSE_TRY(CheckWritable(o.state_out));
  return {};
}

// Answers all rows, into `sink`; returns how many.
core::Result<size_t> AnswerAll(const PredictOptions& o, runtime::Predictor& predictor,
                               LineSink sink) {
  Answers answers(predictor, InputName(o.data), sink);
  const core::Status status = o.data == "-" ? AnswerStream(answers) : AnswerFile(o.data, answers);
  HOGNOSE_TRY(answers.Flush());  // also the rows before a wrong one
  HOGNOSE_TRY(status);
  return answers.rows();
}

core::Result<size_t> WriteAnswers(const PredictOptions& o, runtime::Predictor& predictor) {
  if (o.out.empty() || o.out == "-") {
    const auto print = [](std::string_view text) { return Print(text); };
    return AnswerAll(o, predictor, print);
  }
  size_t rows = 0;
  HOGNOSE_TRY(io::WriteFile(o.out, [&](io::FileWriter& writer) {
    const auto sink = [&](std::string_view text) {
      writer.Write({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
      return !writer.failed();
    };
    HOGNOSE_ASSIGN(rows, AnswerAll(o, predictor, sink));
    return core::Status();
  }));
  return rows;
}

core::Result<int> Predict(const PredictOptions& o) {
  HOGNOSE_TRY(CheckOptions(o));
  CatchInterrupt();
  HOGNOSE_ASSIGN(const auto predictor, runtime::Predictor::Load(o.model, LoadOptionsOf(o.common)));
  for (const auto& warning : predictor->warnings()) Note(warning);
  if (!o.state_in.empty()) HOGNOSE_TRY(predictor->ReadState(o.state_in));
  const auto start = std::chrono::steady_clock::now();
  HOGNOSE_ASSIGN(const size_t rows, WriteAnswers(o, *predictor));
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  HOGNOSE_TRY(OutputStatus());
  if (!o.state_out.empty()) HOGNOSE_TRY(predictor->WriteState(o.state_out));
  const double speed = static_cast<double>(rows) / std::max(spent.count(), 1e-9);
  if (o.common.json) {
    PrintJson(core::Value::Object{{"out", o.out},
                                  {"rows", rows},
                                  {"position", predictor->position()},
                                  {"rows_per_second", speed}});
  }
  if (OutputOpen()) Note(fmt::format("{} rows, {:.0f} rows/s", rows, speed));
  return Interrupted() ? kExitInterrupted : kExitDone;
}

}  // namespace

Runner AddPredict(CLI::App& app) {
  auto o = std::make_shared<PredictOptions>();
  AddPath(app, "MODEL", &o->model, "Folder of a regression or classification model");
  AddPath(app, "--data", &o->data, "Table: CSV or .npy; - reads CSV from standard input by rows");
  AddPath(app, "--out", &o->out, "CSV to write (default: standard output)");
  AddPath(app, "--state-in", &o->state_in, "Go on with the sequence of this state file");
  AddPath(app, "--state-out", &o->state_out, "Write the state after the last row");
  AddCommon(app, o->common);
  return [o] { return Predict(*o); };
}

}  // namespace hognose::cli
