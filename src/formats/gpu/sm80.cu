#include "formats/gpu/blocks.cuh"
#include "formats/gpu/expand.cuh"
#include "formats/gpu/groups.cuh"
#include "formats/gpu/tiles.cuh"
#include "hw/image.h"

namespace halftone {
template <pipe::Access kAccess>
using Tiles = QuantizeTilesGpu<kAccess, false>;
template <pipe::Access kAccess>
using Groups = QuantizeGroupsGpu<kAccess, false>;
template <pipe::Access kAccess>
using Expand = ExpandGpu<kAccess, false>;
}  // namespace halftone

HT_GPU_ENTRY(halftone::QuantizeBlocksGpu<false>)
HT_GPU_ENTRIES_OF_WHOLE_ROWS(halftone::Tiles)
HT_GPU_ENTRIES_OF_WHOLE_ROWS(halftone::Groups)
HT_GPU_ENTRIES_OF_WHOLE_ROWS(halftone::Expand)
