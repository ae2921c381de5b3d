#include "kernels/discretize/discretize.h"
