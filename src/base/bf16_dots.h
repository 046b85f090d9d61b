// Which of two ways to multiply bf16 a processor with both is faster at.
#pragma once

namespace halftone {

// Whether kernels with a choice multiply bf16 in f32 rather than pairs of them (VDPBF16PS), which
// is slower on some processors. HALFTONE_BF16=dot or HALFTONE_BF16=f32 overrules, as tests do.
bool multiply_bf16_in_f32();

}  // namespace halftone
