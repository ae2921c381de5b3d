#include "kernels/scan/scan.h"
namespace hognose::kernels {
ScanMethod PickScan(const ScanShape&) noexcept { return ScanMethod::kSequential; }
double ScanCost(const ScanShape&, ScanMethod, size_t) noexcept { return 0; }
}  // namespace hognose::kernels
