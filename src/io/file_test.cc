#include "io/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "io/test_util.h"

namespace hognose::io {
namespace {

using core::Status;

std::string_view Text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

mode_t Mode(const std::string& path) {
  struct stat info = {};
  EXPECT_EQ(stat(path.c_str(), &info), 0);
  return info.st_mode & 0777;
}

TEST(MappedFileTest, MapsAndMoves) {
  const TestFolder folder;
  auto file = MappedFile::Open(folder.Put("a", "hello"));
  ASSERT_TRUE(file.ok());
  MappedFile moved = std::move(*file);
  EXPECT_EQ(Text(moved), "hello");
  EXPECT_EQ(moved.path(), folder / "a");
  MappedFile assigned;
  assigned = std::move(moved);
  EXPECT_EQ(Text(assigned), "hello");
  auto empty = MappedFile::Open(folder.Put("empty", ""));
  ASSERT_TRUE(empty.ok());
  EXPECT_TRUE(empty->bytes().empty());
}

TEST(MappedFileTest, ErrorsNameThePathAndTheReason) {
  const TestFolder folder;
  EXPECT_TRUE(FailsWith(MappedFile::Open(folder / "none").status(),
                        {folder / "none", "could not open: No such file or directory"}));
  EXPECT_TRUE(FailsWith(MappedFile::Open(folder.path()).status(),
                        {folder.path(), "got a folder, want a regular file"}));
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);  // doesn't wait for a writer
  EXPECT_TRUE(FailsWith(MappedFile::Open(folder / "pipe").status(),
                        {"got a special file, want a regular file"}));
}

TEST(ReadFileTest, ReadsFilesPipesAndNothing) {
  const TestFolder folder;
  const std::string large(300000, 'x');
  EXPECT_EQ(*ReadFile(folder.Put("a", large)), large);
  EXPECT_EQ(*ReadFile(folder.Put("empty", "")), "");
  EXPECT_EQ(*ReadFile("/dev/null"), "");
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::thread writer([&] { folder.Put("pipe", large); });
  EXPECT_EQ(*ReadFile(folder / "pipe"), large);
  writer.join();
}

TEST(ReadFileTest, HasALimit) {
  const TestFolder folder;
  const std::string path = folder.Put("a", "12345");
  EXPECT_EQ(*ReadFile(path, 5), "12345");
  EXPECT_TRUE(FailsWith(ReadFile(path, 4).status(), {path, "got more than 4 bytes"}));
  EXPECT_TRUE(FailsWith(ReadFile("/dev/zero", 1000).status(), {"/dev/zero: got more than 1000"}));
  EXPECT_TRUE(FailsWith(ReadFile(folder.path()).status(), {folder.path(), "Is a directory"}));
  EXPECT_TRUE(FailsWith(ReadFile(folder / "none").status(), {"No such file or directory"}));
}

TEST(WriteFileTest, WritesAndReplaces) {
  const TestFolder folder;
  const std::string path = folder / "a";
  ASSERT_TRUE(WriteFile(path, "one").ok());
  EXPECT_EQ(Slurp(path), "one");
  const mode_t mask = umask(0);
  umask(mask);
  EXPECT_EQ(Mode(path), 0666 & ~mask);
  auto old = MappedFile::Open(path);
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  ASSERT_TRUE(WriteFile(path, "two two").ok());
  EXPECT_EQ(Slurp(path), "two two");
  EXPECT_EQ(Mode(path), 0640u);
  EXPECT_EQ(Text(*old), "one");  // who has the old file open keeps it
  EXPECT_EQ(folder.CountFiles(), 1u);
}

TEST(WriteFileTest, AFailureLeavesTheOldFile) {
  const TestFolder folder;
  const std::string path = folder.Put("a", "old");
  const auto fail = [&](FileWriter& writer) {
    const std::vector<uint8_t> bytes(1 << 20);
    writer.Write(bytes);
    EXPECT_EQ(folder.CountFiles(), 2u);  // written aside, in the same folder
    return Status::Failed("model: no");
  };
  EXPECT_TRUE(FailsWith(WriteFile(path, fail), {"model: no"}));
  EXPECT_EQ(Slurp(path), "old");
  EXPECT_EQ(folder.CountFiles(), 1u);
  EXPECT_TRUE(FailsWith(WriteFile(folder / "none/a", "x"),
                        {folder / "none/a", "could not write: No such file or directory"}));
  EXPECT_TRUE(FailsWith(WriteFile(folder.path(), "x"), {"got a folder, want a file to write"}));
  EXPECT_FALSE(WriteFile("", "x").ok());
}

TEST(WriteFileTest, AFailedWriteLeavesTheOldFile) {
  const TestFolder folder;
  const std::string path = folder.Put("a", "old");
  const pid_t child = fork();
  if (child == 0) {  // limits hold for a whole process
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    bool failed = false;
    const Status status = WriteFile(path, [&](FileWriter& writer) {
      const std::vector<uint8_t> bytes(1 << 16);
      for (int i = 0; i < 64; ++i) writer.Write(bytes);
      failed = writer.failed();
      return Status();
    });
    _exit(failed && FailsWith(status, {path, "could not write: File too large"}) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Slurp(path), "old");
  EXPECT_EQ(folder.CountFiles(), 1u);
}

TEST(WriteFileTest, WritesInPiecesAndBack) {
  const TestFolder folder;
  std::vector<uint8_t> want;
  const Status status = WriteFile(folder / "a", [&](FileWriter& writer) {
    for (const size_t size : {0, 1, 7, 1 << 18, 3, (1 << 18) + 1, 100000, 200000, 5}) {
      const std::vector<uint8_t> piece(size, static_cast<uint8_t>(size % 251));
      writer.Write(piece);
      want.insert(want.end(), piece.begin(), piece.end());
    }
    const uint8_t patch[] = {1, 2, 3};
    writer.WriteAt(0, patch);
    std::copy(std::begin(patch), std::end(patch), want.begin());
    writer.WriteAt(want.size() - 3, patch);
    std::copy(std::begin(patch), std::end(patch), want.end() - 3);
    const uint8_t last[] = {9};
    writer.Write(last);  // goes on at the end
    want.push_back(9);
    return Status();
  });
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(Slurp(folder / "a"), std::string(want.begin(), want.end()));
}

TEST(WriteFileTest, FollowsSymbolicLinks) {
  const TestFolder folder;
  ASSERT_EQ(mkdir((folder / "sub").c_str(), 0700), 0);
  folder.Put("sub/real", "old");
  ASSERT_EQ(symlink("sub/real", (folder / "link").c_str()), 0);
  ASSERT_EQ(symlink("link", (folder / "second").c_str()), 0);
  ASSERT_TRUE(WriteFile(folder / "second", "new").ok());
  EXPECT_EQ(Slurp(folder / "sub/real"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "second"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  ASSERT_EQ(symlink("sub/later", (folder / "dangling").c_str()), 0);
  ASSERT_TRUE(WriteFile(folder / "dangling", "new").ok());
  EXPECT_EQ(Slurp(folder / "sub/later"), "new");
  ASSERT_EQ(symlink("loop", (folder / "loop").c_str()), 0);
  EXPECT_FALSE(WriteFile(folder / "loop", "x").ok());
}

TEST(WriteFileTest, KeepsAWriteProtectedFile) {
  const TestFolder folder;
  const std::string path = folder.Put("a", "old");
  ASSERT_EQ(chmod(path.c_str(), 0444), 0);
  ASSERT_EQ(chmod(folder.path().c_str(), 0777), 0);
  const pid_t child = fork();
  if (child == 0) {  // nothing is write-protected from root
    const bool unprivileged = geteuid() != 0 || setuid(65534) == 0;
    const Status status = WriteFile(path, "new");
    _exit(unprivileged && FailsWith(status, {path, "Permission denied"}) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Slurp(path), "old");
}

TEST(WriteFileTest, WritesSpecialFilesDirectly) {
  const TestFolder folder;
  EXPECT_TRUE(WriteFile("/dev/null", "x").ok());
  EXPECT_TRUE(
      FailsWith(WriteFile("/dev/full", "x"), {"/dev/full: could not write: No space left"}));
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] { got = *ReadFile(folder / "pipe"); });
  EXPECT_TRUE(WriteFile(folder / "pipe", "through").ok());
  reader.join();
  EXPECT_EQ(got, "through");
  EXPECT_EQ(folder.CountFiles(), 1u);
  const Status status = WriteFile("/dev/null", [](FileWriter& writer) {
    const uint8_t byte[] = {1};
    writer.Write(byte);
    writer.WriteAt(0, byte);
    return Status();
  });
  EXPECT_TRUE(FailsWith(status, {"/dev/null: could not write: Illegal seek"}));
}

TEST(WriteFileTest, StandardOutputGoesOnWhereItIs) {
  const TestFolder folder;
  const std::string path = folder.Put("out", "");
  const pid_t child = fork();
  if (child == 0) {
    const int fd = open(path.c_str(), O_WRONLY);
    dup2(fd, STDOUT_FILENO);
    bool ok = write(STDOUT_FILENO, "first ", 6) == 6;
    ok = WriteFile("/dev/stdout", "second ").ok() && ok;
    ok = write(STDOUT_FILENO, "third", 5) == 5 && ok;
    _exit(ok ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Slurp(path), "first second third");
  EXPECT_EQ(folder.CountFiles(), 1u);
}

}  // namespace
}  // namespace hognose::io
