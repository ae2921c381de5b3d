#include "train/loss_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

#include "core/check.h"

namespace hognose::train {
namespace {

constexpr double kWidth = 800, kHeight = 400;
constexpr double kLeft = 70, kRight = 780, kTop = 40, kBottom = 350;  // of the plot's area

// Dark backgrounds are asked for by the viewer; who doesn't ask gets the light one, drawn, so that
// the text is always seen.
constexpr std::string_view kStyle = R"(<style>
.back{fill:#ffffff}.text{fill:#333333;font:12px sans-serif}
.grid{stroke:#e0e0e0}.axis{stroke:#888888}
.line{fill:none;stroke-width:1.5;stroke-linejoin:round}
.training{stroke:#1f6fb4}.evaluation{stroke:#d1600a}
.dot.training{fill:#1f6fb4}.dot.evaluation{fill:#d1600a}
@media (prefers-color-scheme:dark){
.back{fill:#16191d}.text{fill:#d0d0d0}.grid{stroke:#333840}.axis{stroke:#808080}
.training{stroke:#6db3f2}.evaluation{stroke:#ff9f4a}
.dot.training{fill:#6db3f2}.dot.evaluation{fill:#ff9f4a}
}
</style>
)";

struct Range {
  double lo, hi;
};

struct Point {
  double x, y;  // step and loss
};

std::vector<Point> Finite(std::span<const CurvePoint> points) {
  std::vector<Point> kept;
  for (const auto& p : points) {
    if (std::isfinite(p.loss)) kept.push_back({static_cast<double>(p.step), p.loss});
  }
  return kept;
}

// The range of all points, widened where it is empty.
Range FindRange(const std::vector<Point>& a, const std::vector<Point>& b, double Point::*member) {
  Range range = {HUGE_VAL, -HUGE_VAL};
  for (const auto* points : {&a, &b}) {
    for (const Point& p : *points) {
      range = {std::min(range.lo, p.*member), std::max(range.hi, p.*member)};
    }
  }
  if (range.lo > range.hi) return {0, 1};
  // Far beyond any loss, and the differences below would overflow.
  range.lo = std::max(range.lo, -1e300);
  range.hi = std::min(range.hi, 1e300);
  const double size = std::max(std::abs(range.lo), std::abs(range.hi));
  if (range.hi - range.lo <= 1e-9 * size || range.hi == range.lo) {
    const double half = size > 0 ? size / 2 : 0.5;
    return {range.lo - half, range.hi + half};
  }
  return range;
}

double Place(double value, const Range& range, double from, double to) {
  const double part = std::clamp((value - range.lo) / (range.hi - range.lo), 0.0, 1.0);
  return from + (to - from) * part;
}

// Keeps what is seen of the points that fall into one column of the picture.
std::vector<Point> Thin(const std::vector<Point>& points) {
  std::vector<Point> kept;
  for (size_t begin = 0; begin < points.size();) {
    size_t end = begin + 1, low = begin, high = begin;
    for (; end < points.size() && std::floor(points[end].x) == std::floor(points[begin].x); ++end) {
      if (points[end].y < points[low].y) low = end;
      if (points[end].y > points[high].y) high = end;
    }
    size_t last = points.size();
    for (const size_t i : {begin, std::min(low, high), std::max(low, high), end - 1}) {
      if (i != last) kept.push_back(points[i]);
      last = i;
    }
    begin = end;
  }
  return kept;
}

void DrawAxes(const Range& steps, const Range& losses, std::string* svg) {
  auto out = std::back_inserter(*svg);
  for (const double tick : RoundTicks(losses.lo, losses.hi, 6)) {
    const double y = Place(tick, losses, kBottom, kTop);
    fmt::format_to(out,
                   "<path class=\"grid\" d=\"M{} {:.1f}H{}\"/>\n"
                   "<text class=\"text\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.6g}</text>\n",
                   kLeft, y, kRight, kLeft - 8, y + 4, tick);
  }
  for (const double tick : RoundTicks(steps.lo, steps.hi, 8)) {
    if (tick != std::floor(tick)) continue;  // no half steps
    const double x = Place(tick, steps, kLeft, kRight);
    fmt::format_to(out,
                   "<path class=\"axis\" d=\"M{:.1f} {}v5\"/>\n<text class=\"text\" x=\"{:.1f}\" "
                   "y=\"{}\" text-anchor=\"middle\">{:.10g}</text>\n",
                   x, kBottom, x, kBottom + 20, tick);
  }
  fmt::format_to(out,
                 "<path class=\"axis\" fill=\"none\" d=\"M{} {}V{}H{}\"/>\n"
                 "<text class=\"text\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">step</text>\n"
                 "<text class=\"text\" x=\"{}\" y=\"{}\">loss</text>\n",
                 kLeft, kTop, kBottom, kRight, (kLeft + kRight) / 2, kHeight - 10, 20, kTop - 18);
}

void DrawSeries(const std::vector<Point>& points, const Range& steps, const Range& losses,
                std::string_view name, std::string* svg) {
  std::vector<Point> placed;
  for (const Point& p : points) {
    placed.push_back({Place(p.x, steps, kLeft, kRight), Place(p.y, losses, kBottom, kTop)});
  }
  placed = Thin(placed);
  auto out = std::back_inserter(*svg);
  if (placed.size() > 1) {
    fmt::format_to(out, "<polyline class=\"line {}\" points=\"", name);
    for (const Point& p : placed) {
      fmt::format_to(out, "{}{:.1f},{:.1f}", &p == placed.data() ? "" : " ", p.x, p.y);
    }
    *svg += "\"/>\n";
  }
  // Few points are seen as such; one alone has no line.
  constexpr size_t kDots = 50;
  if (placed.size() > kDots) return;
  for (const Point& p : placed) {
    fmt::format_to(out, "<circle class=\"dot {}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\"/>\n", name,
                   p.x, p.y);
  }
}

void DrawLegend(double right, std::string_view name, std::string* svg) {
  fmt::format_to(std::back_inserter(*svg),
                 "<path class=\"line {}\" d=\"M{} {}h20\"/>\n"
                 "<text class=\"text\" x=\"{}\" y=\"{}\">{}</text>\n",
                 name, right - 90, kTop - 22, right - 64, kTop - 18, name);
}

}  // namespace

std::vector<double> RoundTicks(double lo, double hi, size_t count) {
  HOGNOSE_CHECK(lo < hi && count > 0);
  const double rough = (hi - lo) / static_cast<double>(count);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double digit : {5, 2, 1}) {
    // The nearest of them on a scale of ratios: sqrt(2), sqrt(10) and sqrt(50) lie between.
    if (rough < digit * power * std::sqrt(2.0)) step = digit * power;
  }
  std::vector<double> ticks;
  // Multiples of the step, not sums of it, so that 0 is 0 and no rounding adds up.
  const double first = std::ceil(lo / step - 1e-9), last = std::floor(hi / step + 1e-9);
  for (double i = first; i <= last && ticks.size() < 4 * count + 4; ++i) {
    ticks.push_back(i * step + 0.0);  // -0 becomes 0
  }
  return ticks;
}

std::string DrawLossCurve(std::span<const CurvePoint> training,
                          std::span<const CurvePoint> evaluation) {
  const std::vector<Point> train = Finite(training), eval = Finite(evaluation);
  const Range steps = FindRange(train, eval, &Point::x);
  const Range losses = FindRange(train, eval, &Point::y);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" role=\"img\">\n<title>Loss over steps</title>\n{2}"
      "<rect class=\"back\" width=\"{0}\" height=\"{1}\"/>\n",
      kWidth, kHeight, kStyle);
  DrawAxes(steps, losses, &svg);
  DrawSeries(train, steps, losses, "training", &svg);
  DrawLegend(evaluation.empty() ? kRight : kRight - 110, "training", &svg);
  if (!evaluation.empty()) {
    DrawSeries(eval, steps, losses, "evaluation", &svg);
    DrawLegend(kRight, "evaluation", &svg);
  }
  if (train.empty() && eval.empty()) {
    svg += fmt::format(
        "<text class=\"text\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">no finite "
        "loss</text>\n",
        (kLeft + kRight) / 2, (kTop + kBottom) / 2);
  }
  return svg + "</svg>\n";
}

}  // namespace hognose::train
