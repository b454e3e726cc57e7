#include "common.h"

int contiformer_abi(void) { return ABI; }
