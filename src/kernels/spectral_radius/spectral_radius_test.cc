#include "kernels/spectral_radius/spectral_radius.h"
