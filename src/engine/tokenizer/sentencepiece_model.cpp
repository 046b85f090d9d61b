// Reading a .model file.
#include <algorithm>
#include <bitset>
#include <cmath>
#include <unordered_set>

#include "engine/json.h"
#include "engine/tokenizer/bpe.h"
#include "engine/tokenizer/protobuf.h"
#include "engine/tokenizer/sentencepiece.h"

namespace halftone {

namespace {

constexpr size_t kMaxPieces = size_t{1} << 21;
constexpr size_t kLongestPiece = 1024;          // known pieces stay below 100 bytes
constexpr size_t kMaxBytes = size_t{64} << 20;  // known files stay below 5 MB; bounds the memory

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  SentencePieceModel read(std::string_view bytes) {
    if (bytes.size() > kMaxBytes) {
      malformed("the file has ", bytes.size(), " bytes; at most ", kMaxBytes, " are read");
    }
    ProtoReader model(bytes, file_, "ModelProto");
    while (model.next()) {
      switch (model.number()) {
        case 1:
          read_piece(model.text());
          break;
        case 2:
          read_trainer(model.text());
          break;
        case 3:
          read_normalizer(model.text());
          break;
        case 5:
          read_denormalizer(model.text());
          break;
        default:  // self tests and extensions
          break;
      }
    }
    check_pieces();
    return std::move(result_);
  }

 private:
  template <class... Parts>
  [[noreturn]] void malformed(const Parts&... parts) const {
    fail(ErrorCode::malformed_file, file_, ": ", parts...);
  }

  void read_piece(std::string_view bytes) {
    const size_t index = result_.pieces.size();
    if (index == kMaxPieces) malformed("more than ", kMaxPieces, " pieces");
    SentencePieceModel::Piece piece;
    ProtoReader field(bytes, file_, concat("piece ", index));
    while (field.next()) {
      if (field.number() == 1) piece.text = field.text();
      if (field.number() == 2) piece.score = field.float32();
      if (field.number() == 3) {
        const uint64_t type = field.integer();
        if (type < 1 || type > 6) {
          malformed("the type of piece ", index, " is ", type, "; it must be from 1 to 6");
        }
        piece.type = static_cast<SentencePieceModel::Type>(type);
      }
    }
    if (piece.text.empty() || piece.text.size() > kLongestPiece) {
      malformed("piece ", index, " has ", piece.text.size(), " bytes; it must have 1 to ",
                kLongestPiece);
    }
    if (!std::isfinite(piece.score)) malformed("the score of piece ", index, " is not finite");
    result_.pieces.push_back(std::move(piece));
  }

  void read_trainer(std::string_view bytes) {
    ProtoReader field(bytes, file_, "TrainerSpec");
    while (field.next()) {
      switch (field.number()) {
        case 3: {
          const uint64_t kind = field.integer();
          if (kind != 1 && kind != 2) {
            fail(ErrorCode::unsupported, file_, ": model_type is ", kind,
                 "; 1 (unigram) and 2 (BPE) are implemented");
          }
          result_.kind = static_cast<SentencePieceModel::Kind>(kind);
          break;
        }
        case 24:
          result_.space_as_suffix = field.boolean();
          break;
        case 35:
          result_.byte_fallback = field.boolean();
          break;
        case 41:
          result_.bos = field.int32();
          break;
        case 42:
          result_.eos = field.int32();
          break;
        case 44:
          result_.unknown_text = field.text();
          break;
        default:  // how it was trained
          break;
      }
    }
  }

  void read_normalizer(std::string_view bytes) {
    ProtoReader field(bytes, file_, "NormalizerSpec");
    while (field.next()) {
      switch (field.number()) {
        case 2:
          result_.normalizer = CharsMap(field.text(), file_ + ": precompiled_charsmap");
          break;
        case 3:
          result_.add_dummy_prefix = field.boolean();
          break;
        case 4:
          result_.remove_extra_spaces = field.boolean();
          break;
        case 5:
          result_.escape_spaces = field.boolean();
          break;
        default:  // the name, and the rules that the map was made from
          break;
      }
    }
  }

  void read_denormalizer(std::string_view bytes) {
    ProtoReader field(bytes, file_, "denormalizer NormalizerSpec");
    while (field.next()) {
      if (field.number() != 2) continue;
      result_.denormalizer = CharsMap(field.text(), file_ + ": denormalizer precompiled_charsmap");
    }
  }

  void check_pieces() {
    using Type = SentencePieceModel::Type;
    std::unordered_set<std::string_view> known;
    std::bitset<256> bytes;
    for (size_t i = 0; i < result_.pieces.size(); ++i) {
      const SentencePieceModel::Piece& piece = result_.pieces[i];
      if (!known.insert(piece.text).second) {
        malformed("piece ", i, " is ", quote(piece.text), ", which another piece is too");
      }
      if (piece.type == Type::unknown) {
        if (result_.unknown >= 0) {
          malformed("pieces ", result_.unknown, " and ", i, " are both the unknown piece");
        }
        result_.unknown = static_cast<int32_t>(i);
      }
      if (piece.type != Type::byte) continue;
      const int byte = byte_of_piece(piece.text);
      if (byte < 0) {
        malformed("piece ", i, " is ", quote(piece.text),
                  "; a byte must be \"<0x00>\" to \"<0xFF>\"");
      }
      bytes.set(static_cast<size_t>(byte));
    }
    if (result_.unknown < 0) malformed("none of its ", result_.pieces.size(), " pieces is unknown");
    if (result_.byte_fallback && !bytes.all()) {
      malformed("byte_fallback is set and ", bytes.count(), " of the 256 bytes have a piece");
    }
    const auto count = static_cast<int32_t>(result_.pieces.size());
    for (int32_t* id : {&result_.bos, &result_.eos}) {
      const bool control =
          *id >= 0 && *id < count && result_.pieces[static_cast<size_t>(*id)].type == Type::control;
      if (!control) *id = -1;
    }
  }

  const std::string& file_;
  SentencePieceModel result_;
};

}  // namespace

SentencePieceModel SentencePieceModel::parse(std::string_view bytes, const std::string& file) {
  return Reader(file).read(bytes);
}

bool is_sentencepiece(std::string_view bytes) {
  // The first field is a piece (field 1, bytes), whose first field is its text (likewise).
  if (bytes.size() < 4 || bytes[0] != '\x0a') return false;
  size_t at = 1;
  while (at < bytes.size() && at < 6 && static_cast<unsigned char>(bytes[at]) >= 0x80) ++at;
  return at + 1 < bytes.size() && bytes[at + 1] == '\x0a';
}

}  // namespace halftone
