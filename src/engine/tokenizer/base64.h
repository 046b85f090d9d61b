// Base64 with its padding (RFC 4648).
#pragma once
#include <string>
#include <string_view>

namespace halftone {

// False when the text is something else; `bytes` is then unspecified.
bool decode_base64(std::string_view text, std::string& bytes);

}  // namespace halftone
