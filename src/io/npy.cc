#include "io/npy.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>

namespace hognose::io {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays are little-endian in the file");

using core::DType;
using core::Result;
using core::Status;
using core::TensorView;

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kVersionEnd = 8;  // magic and version
constexpr size_t kAlignment = 64;
constexpr size_t kMaxRank = 4;

struct Header {
  std::optional<std::string_view> descr;
  std::optional<bool> fortran_order;
  std::optional<TensorView> shape;  // its rank and shape only
};

// Reads the Python dict of a header: exactly the keys above, plain strings, True or False, and a
// tuple of integers.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  Result<Header> Parse() {
    Header header;
    if (!Take('{')) return Fault("want '{'");
    while (!Take('}')) {
      std::string_view key;
      if (!String(&key)) return Fault("want a key in quotes, or '}'");
      if (!Take(':')) return Fault("want ':'");
      HOGNOSE_TRY(Field(key, &header));
      if (Take(',')) continue;
      if (Take('}')) break;
      return Fault("want ',' or '}'");
    }
    SkipSpace();
    if (at_ != text_.size()) return Fault("want the end of the header");
    if (!header.descr) return Missing("descr");
    if (!header.fortran_order) return Missing("fortran_order");
    if (!header.shape) return Missing("shape");
    return header;
  }

 private:
  Status Field(std::string_view key, Header* header) {
    if (key == "descr" && !header->descr) {
      std::string_view value;
      if (!String(&value)) return Fault("want a type like '<f4'");
      header->descr = value;
      return Status();
    }
    if (key == "fortran_order" && !header->fortran_order) {
      const bool is_true = Word("True");
      if (!is_true && !Word("False")) return Fault("want True or False");
      header->fortran_order = is_true;
      return Status();
    }
    if (key == "shape" && !header->shape) {
      TensorView shape;
      HOGNOSE_TRY(Shape(&shape));
      header->shape = shape;
      return Status();
    }
    return Status::Failed(
        fmt::format("{}: header: got the key '{}', want descr, fortran_order and shape once each",
                    where_, key));
  }

  Status Shape(TensorView* shape) {
    if (!Take('(')) return Fault("want '(' of a shape");
    while (!Take(')')) {
      if (shape->rank == kMaxRank) return Fault("want a shape of at most 4 dimensions");
      SkipSpace();
      size_t& size = shape->shape[shape->rank++];
      const char* begin = text_.data() + at_;
      const auto parsed = std::from_chars(begin, text_.data() + text_.size(), size);
      if (parsed.ec != std::errc()) return Fault("want an integer from 0 on that fits in 64 bits");
      at_ += static_cast<size_t>(parsed.ptr - begin);
      if (Take(',')) continue;
      if (!Take(')')) return Fault("want ',' or ')'");
      if (shape->rank == 1) return Fault("want ',' in a shape of one dimension");
      break;
    }
    return Status();
  }

  void SkipSpace() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool Take(char c) {
    SkipSpace();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool Word(std::string_view word) {
    SkipSpace();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  bool String(std::string_view* value) {
    SkipSpace();
    if (at_ == text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) return false;
    const size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) return false;
    *value = text_.substr(at_ + 1, end - at_ - 1);
    if (value->find('\\') != std::string_view::npos) return false;
    at_ = end + 1;
    return true;
  }

  Status Fault(std::string_view want) const {
    const std::string got =
        at_ < text_.size() ? fmt::format("'{}'", text_.substr(at_, 8)) : "the end of the header";
    return Status::Failed(fmt::format("{}: header: got {} at byte {}, {}", where_, got, at_, want));
  }
  Status Missing(std::string_view key) const {
    return Status::Failed(fmt::format("{}: header: got no {}, want one", where_, key));
  }

  std::string_view text_;
  std::string_view where_;
  size_t at_ = 0;
};

// The text of the header; `data` becomes what follows it.
Result<std::string_view> FindHeader(std::span<const uint8_t> bytes, std::string_view where,
                                    std::span<const uint8_t>* data) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kMagic) || bytes.size() < kVersionEnd) {
    return Status::Failed(
        fmt::format("{}: got no NPY file, want one that begins with \\x93NUMPY", where));
  }
  const int major = bytes[6], minor = bytes[7];
  if ((major != 1 && major != 2) || minor != 0) {
    return Status::Failed(
        fmt::format("{}: got NPY version {}.{}, want 1.0 or 2.0", where, major, minor));
  }
  const size_t length_bytes = major == 1 ? 2 : 4;
  const size_t begin = kVersionEnd + length_bytes;
  uint32_t length = 0;
  if (bytes.size() >= begin) std::memcpy(&length, bytes.data() + kVersionEnd, length_bytes);
  if (bytes.size() < begin || length > bytes.size() - begin) {
    return Status::Failed(
        fmt::format("{}: header: got a file of {} bytes, want at least {} (it is truncated)", where,
                    bytes.size(), begin + length));
  }
  *data = bytes.subspan(begin + length);
  return text.substr(begin, length);
}

Result<DType> FindDType(std::string_view descr, std::string_view where) {
  if (descr == "<f4") return DType::kF32;
  if (descr == "<f8") return DType::kF64;
  if (descr == "<i8") return DType::kI64;
  if (descr == "<i4") return DType::kI32;
  const std::string_view why = descr.starts_with('>') ? " (little-endian)" : "";
  return Status::Failed(
      fmt::format("{}: descr: got '{}', want '<f4', '<f8', '<i8' or '<i4'{}", where, descr, why));
}

// False if the byte count overflows. A size of 0 doesn't hide an overflow.
bool CountBytes(const TensorView& tensor, size_t* bytes) {
  *bytes = core::Bytes(tensor.dtype);
  bool empty = false;
  for (const size_t n : tensor.dims()) {
    if (n == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(*bytes, n, bytes)) {
      return false;
    }
  }
  if (empty) *bytes = 0;
  return true;
}

}  // namespace

Result<NpyArray> ParseNpy(std::span<const uint8_t> bytes, std::string_view where) {
  std::span<const uint8_t> data;
  HOGNOSE_ASSIGN(const std::string_view text, FindHeader(bytes, where, &data));
  HOGNOSE_ASSIGN(const Header header, HeaderParser(text, where).Parse());
  NpyArray array;
  TensorView& tensor = array.tensor;
  tensor = *header.shape;
  HOGNOSE_ASSIGN(tensor.dtype, FindDType(*header.descr, where));
  if (*header.fortran_order) {
    return Status::Failed(fmt::format(
        "{}: fortran_order: got True, want False (save numpy.ascontiguousarray(x))", where));
  }
  size_t want = 0;
  if (!CountBytes(tensor, &want)) {
    return Status::Failed(
        fmt::format("{}: shape: got {}, want one whose byte count fits in 64 bits", where,
                    core::ToString(tensor)));
  }
  if (data.size() != want) {
    return Status::Failed(fmt::format("{}: got {} bytes of data, want {} for {}", where,
                                      data.size(), want, core::ToString(tensor)));
  }
  tensor.data = data.data();
  if (reinterpret_cast<uintptr_t>(data.data()) % core::Bytes(tensor.dtype) != 0) {
    array.copy.reset(new uint8_t[want + 1]);  // never empty
    if (want > 0) std::memcpy(array.copy.get(), data.data(), want);
    tensor.data = array.copy.get();
  }
  return array;
}

bool LooksLikeNpy(std::string_view path, std::string_view bytes) {
  return path.ends_with(".npy") || bytes.starts_with(kMagic);
}

Result<NpyArray> OpenNpy(const std::string& path) {
  HOGNOSE_ASSIGN(MappedFile file, MappedFile::Open(path));
  HOGNOSE_ASSIGN(NpyArray array, ParseNpy(file.bytes(), path));
  array.file = std::move(file);
  return array;
}

Status WriteNpy(const std::string& path, size_t rows, size_t cols,
                core::FunctionRef<Status(NpyRowSink)> fill) {
  std::string header =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, cols);
  const size_t total = kVersionEnd + sizeof(uint16_t) + header.size() + 1;
  header.append((kAlignment - total % kAlignment) % kAlignment, ' ');
  header.push_back('\n');
  const auto length = static_cast<uint16_t>(header.size());
  std::string start(kMagic);
  start += {'\1', '\0', static_cast<char>(length & 0xFF), static_cast<char>(length >> 8)};
  start += header;
  return WriteFile(path, [&](FileWriter& writer) {
    writer.Write({reinterpret_cast<const uint8_t*>(start.data()), start.size()});
    size_t got_rows = 0, wrong_cols = cols;
    const auto sink = [&](std::span<const float> row) {
      ++got_rows;
      if (row.size() != cols) wrong_cols = row.size();
      writer.Write({reinterpret_cast<const uint8_t*>(row.data()), row.size_bytes()});
      return !writer.failed();
    };
    HOGNOSE_TRY(fill(sink));
    if (writer.failed()) return Status();  // WriteFile has the reason
    if (wrong_cols != cols) {
      return Status::Failed(
          fmt::format("{}: got a row of {} values, want {}", path, wrong_cols, cols));
    }
    if (got_rows != rows) {
      return Status::Failed(fmt::format("{}: got {} rows, want {}", path, got_rows, rows));
    }
    return Status();
  });
}

}  // namespace hognose::io
