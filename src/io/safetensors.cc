#include "io/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <set>

#include "core/value.h"
#include "io/json.h"

namespace hognose::io {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are little-endian in the file");

using core::DTypeInfo;
using core::Result;
using core::Status;
using core::TensorView;
using core::Value;

constexpr size_t kLengthBytes = 8;
constexpr size_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxRank = 4;
constexpr size_t kBodyAlignment = 64;
constexpr std::string_view kMetadataKey = "__metadata__";

struct Entry {
  std::string_view name;
  TensorView tensor;  // data is set by PlaceTensors
  size_t begin = 0;
  size_t end = 0;
};

// "[8, 24)", for messages.
std::string Range(size_t begin, size_t end) { return fmt::format("[{}, {})", begin, end); }

Status Fault(std::string_view where, std::string_view what, std::string_view fault) {
  return Status::Failed(fmt::format("{}: {}: {}", where, what, fault));
}

std::string_view TypeName(const Value* value) {
  return value == nullptr ? "nothing" : value->TypeName();
}

Result<std::string_view> ReadHeader(std::span<const uint8_t> bytes, std::string_view where) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("version https://git-lfs")) {
    return Status::Failed(fmt::format(
        "{}: got a Git LFS pointer, want the file itself (fetch it with: git lfs pull)", where));
  }
  if (bytes.size() < kLengthBytes) {
    return Fault(where, "header",
                 fmt::format("got a file of {} bytes, want at least the {} of a header length",
                             bytes.size(), kLengthBytes));
  }
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kMaxHeaderBytes) {
    return Fault(where, "header",
                 fmt::format("got a length of {} bytes, want at most {} (is this safetensors?)",
                             length, kMaxHeaderBytes));
  }
  if (length > bytes.size() - kLengthBytes) {
    return Fault(where, "header",
                 fmt::format("got a length of {} bytes, want at most the {} that the file holds "
                             "(it is truncated)",
                             length, bytes.size() - kLengthBytes));
  }
  const std::string_view header = text.substr(kLengthBytes, length);
  if (!header.starts_with('{')) {
    return Fault(where, "header", "got JSON that doesn't begin with '{', want an object");
  }
  return header;
}

Result<Metadata> ReadMetadata(const Value& value, std::string_view where) {
  Metadata metadata;
  if (value.is_null()) return metadata;
  const auto* object = value.AsObject();
  if (object == nullptr) {
    return Fault(where, kMetadataKey, fmt::format("got {}, want an object", value.TypeName()));
  }
  for (const auto& [key, text] : *object) {
    if (text.AsString() == nullptr) {
      return Fault(where, kMetadataKey,
                   fmt::format("{}: got {}, want a string", key, text.TypeName()));
    }
    metadata.emplace(key, *text.AsString());
  }
  return metadata;
}

Result<const DTypeInfo*> ReadDType(const Value* value, std::string_view where,
                                   std::string_view name) {
  if (value == nullptr || value->AsString() == nullptr) {
    return Fault(where, name, fmt::format("dtype: got {}, want a string", TypeName(value)));
  }
  std::string known;
  for (const auto& info : core::kDTypes) {
    if (info.safetensors_name == *value->AsString()) return &info;
    known += (known.empty() ? "" : ", ");
    known += info.safetensors_name;
  }
  return Fault(where, name,
               fmt::format("dtype: got {}, want one of {}", *value->AsString(), known));
}

// A list of sizes: integers from 0 on.
Result<std::vector<size_t>> ReadSizes(const Value* value, std::string_view where,
                                      std::string_view name, std::string_view field) {
  const auto* array = value == nullptr ? nullptr : value->AsArray();
  if (array == nullptr) {
    return Fault(where, name, fmt::format("{}: got {}, want an array", field, TypeName(value)));
  }
  std::vector<size_t> sizes;
  for (const auto& item : *array) {
    const int64_t* size = item.AsInt();
    if (size == nullptr || *size < 0) {
      return Fault(where, name,
                   fmt::format("{}: got {}, want integers from 0 on", field, ToJson(*value)));
    }
    sizes.push_back(static_cast<size_t>(*size));
  }
  return sizes;
}

// The byte count of a shape, or nothing if it overflows. A size of 0 doesn't hide an overflow.
std::optional<size_t> ByteCount(std::span<const size_t> shape, size_t element_bytes) {
  size_t bytes = element_bytes;
  bool empty = false;
  for (const size_t n : shape) {
    if (n == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(bytes, n, &bytes)) {
      return std::nullopt;
    }
  }
  return empty ? 0 : bytes;
}

Result<Entry> ReadEntry(std::string_view name, const Value& value, size_t body_bytes,
                        std::string_view where) {
  if (value.AsObject() == nullptr) {
    return Fault(where, name, fmt::format("got {}, want an object", value.TypeName()));
  }
  HOGNOSE_ASSIGN(const DTypeInfo* dtype, ReadDType(value.Find("dtype"), where, name));
  HOGNOSE_ASSIGN(const std::vector<size_t> shape,
                 ReadSizes(value.Find("shape"), where, name, "shape"));
  HOGNOSE_ASSIGN(const std::vector<size_t> offsets,
                 ReadSizes(value.Find("data_offsets"), where, name, "data_offsets"));
  if (shape.size() > kMaxRank) {
    return Fault(where, name,
                 fmt::format("shape: got {} dimensions, want at most {}", shape.size(), kMaxRank));
  }
  if (offsets.size() != 2) {
    return Fault(where, name, fmt::format("data_offsets: got {} numbers, want 2", offsets.size()));
  }
  Entry entry{.name = name, .tensor = {}, .begin = offsets[0], .end = offsets[1]};
  entry.tensor.dtype = dtype->dtype;
  entry.tensor.rank = shape.size();
  std::copy(shape.begin(), shape.end(), entry.tensor.shape.begin());
  if (entry.begin > entry.end || entry.end > body_bytes) {
    return Fault(where, name,
                 fmt::format("data_offsets: got bytes {}, want a range inside the body's {} bytes",
                             Range(entry.begin, entry.end), body_bytes));
  }
  const std::optional<size_t> bytes = ByteCount(shape, dtype->bytes);
  if (!bytes.has_value()) {
    return Fault(where, name,
                 fmt::format("shape: got {}, want one whose byte count fits in 64 bits",
                             core::ToString(entry.tensor)));
  }
  if (*bytes != entry.end - entry.begin) {
    return Fault(where, name,
                 fmt::format("got {} bytes of data, want {} for {}", entry.end - entry.begin,
                             *bytes, core::ToString(entry.tensor)));
  }
  return entry;
}

// Every byte of the body must belong to exactly one tensor.
Status CheckCover(std::vector<Entry>& entries, size_t body_bytes, std::string_view where) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  const Entry* last = nullptr;
  size_t covered = 0;
  for (const auto& entry : entries) {
    if (entry.begin < covered) {
      return Fault(
          where, entry.name,
          fmt::format("data_offsets: got bytes {}, want none of those of {} {}",
                      Range(entry.begin, entry.end), last->name, Range(last->begin, last->end)));
    }
    if (entry.begin > covered) {
      return Fault(where, entry.name,
                   fmt::format("data_offsets: got bytes {} that belong to no tensor before it, "
                               "want no hole",
                               Range(covered, entry.begin)));
    }
    covered = entry.end;
    last = &entry;
  }
  if (covered != body_bytes) {
    return Fault(
        where, "body",
        fmt::format("got {} bytes, want {}, the end of the last tensor", body_bytes, covered));
  }
  return Status();
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  HOGNOSE_ASSIGN(MappedFile file, MappedFile::Open(path));
  HOGNOSE_ASSIGN(SafetensorsFile result, Parse(file.bytes(), path));
  result.file_ = std::move(file);
  return result;
}

Result<SafetensorsFile> SafetensorsFile::Parse(std::span<const uint8_t> bytes,
                                               std::string_view where) {
  HOGNOSE_ASSIGN(const std::string_view header, ReadHeader(bytes, where));
  HOGNOSE_ASSIGN(const Value root, ParseJson(header, fmt::format("{}: header", where)));
  const auto body = bytes.subspan(kLengthBytes + header.size());
  SafetensorsFile result;
  std::vector<Entry> entries;
  for (const auto& [name, value] : *root.AsObject()) {
    if (name == kMetadataKey) {
      HOGNOSE_ASSIGN(result.metadata_, ReadMetadata(value, where));
      continue;
    }
    HOGNOSE_ASSIGN(entries.emplace_back(), ReadEntry(name, value, body.size(), where));
  }
  HOGNOSE_TRY(CheckCover(entries, body.size(), where));
  for (auto& entry : entries) {
    entry.tensor.data = body.data() + entry.begin;
    result.tensors_.emplace(entry.name, entry.tensor);
  }
  result.AlignTensors();
  return result;
}

void SafetensorsFile::AlignTensors() {
  for (auto& [name, tensor] : tensors_) {
    const size_t alignment = core::Bytes(tensor.dtype);
    if (reinterpret_cast<uintptr_t>(tensor.data) % alignment == 0) continue;
    // new[] aligns to 16 bytes, more than any element needs.
    auto& copy = copies_.emplace_back(new uint8_t[std::max<size_t>(1, tensor.bytes())]);
    if (tensor.bytes() > 0) std::memcpy(copy.get(), tensor.data, tensor.bytes());
    tensor.data = copy.get();
  }
}

namespace {

using NamedTensor = std::pair<std::string, TensorView>;

Status CheckNames(const std::vector<NamedTensor>& tensors, const std::string& path) {
  std::set<std::string_view> names;
  for (const auto& [name, tensor] : tensors) {
    if (!IsUtf8(name)) return Fault(path, name, "got a name that isn't UTF-8");
    if (name == kMetadataKey) return Fault(path, name, "got a reserved name for a tensor");
    if (!names.insert(name).second) return Fault(path, name, "got two tensors of this name");
  }
  return Status();
}

// The header's length and JSON, padded with spaces.
std::string MakeHeader(const std::vector<const NamedTensor*>& tensors, const Metadata& metadata) {
  Value::Object root;
  if (!metadata.empty()) {
    Value::Object object;
    for (const auto& [key, text] : metadata) object.emplace_back(key, text);
    root.emplace_back(kMetadataKey, std::move(object));
  }
  size_t offset = 0;
  for (const NamedTensor* item : tensors) {
    const TensorView& tensor = item->second;
    Value::Array shape;
    for (const size_t n : tensor.dims()) shape.emplace_back(n);
    Value::Array offsets;
    offsets.emplace_back(offset);
    offsets.emplace_back(offset += tensor.bytes());
    Value::Object object;
    object.emplace_back("dtype", core::Info(tensor.dtype).safetensors_name);
    object.emplace_back("shape", std::move(shape));
    object.emplace_back("data_offsets", std::move(offsets));
    root.emplace_back(item->first, std::move(object));
  }
  std::string json = ToJson(root);
  const size_t total = kLengthBytes + json.size();
  json.append((kBodyAlignment - total % kBodyAlignment) % kBodyAlignment, ' ');
  const uint64_t length = json.size();
  std::string header(kLengthBytes, '\0');
  std::memcpy(header.data(), &length, kLengthBytes);
  return header + json;
}

}  // namespace

std::string SafetensorsHeader(const std::vector<NamedTensor>& tensors, const Metadata& metadata) {
  std::vector<const NamedTensor*> order;
  for (const auto& tensor : tensors) order.push_back(&tensor);
  return MakeHeader(order, metadata);
}

Status WriteSafetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                        const Metadata& metadata) {
  HOGNOSE_TRY(CheckNames(tensors, path));
  std::vector<const NamedTensor*> order;
  for (const auto& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    return core::Bytes(a->second.dtype) > core::Bytes(b->second.dtype);
  });
  const std::string header = MakeHeader(order, metadata);
  if (header.size() - kLengthBytes > kMaxHeaderBytes) {
    return Fault(path, "header",
                 fmt::format("got {} bytes, want at most {}", header.size() - kLengthBytes,
                             kMaxHeaderBytes));
  }
  return WriteFile(path, [&](FileWriter& writer) {
    writer.Write({reinterpret_cast<const uint8_t*>(header.data()), header.size()});
    for (const NamedTensor* item : order) {
      if (writer.failed()) break;
      const TensorView& tensor = item->second;
      writer.Write({static_cast<const uint8_t*>(tensor.data), tensor.bytes()});
    }
    return Status();
  });
}

}  // namespace hognose::io
