#include "sim/execution/collective.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/message.h"
#include "sim/counters.h"
#include "sim/execution/execution.h"
#include "sim/execution/random.h"
#include "sim/execution/scheduler.h"
#include "sim/report.h"

namespace halftone::sim {

namespace {

bool same_instruction(const char* a, const char* b) { return a == b || std::strcmp(a, b) == 0; }

std::string hex(uint32_t mask) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08x", mask);
  return text;
}

// A thread that is already at the meeting, for the report.
const Thread& arrived_thread(const Rendezvous& meeting) {
  for (uint32_t w = 0; w < 4; ++w) {
    if (meeting.arrived[w] != 0) {
      return meeting.block
          .threads[meeting.first_thread + 32 * w + uint32_t(std::countr_zero(meeting.arrived[w]))];
    }
  }
  return meeting.block.threads[meeting.first_thread];
}

[[noreturn]] void mismatch(const char* rule, const char* instruction, const Site& site,
                           const Rendezvous& meeting, std::string text, std::string fix) {
  Thread& me = self();
  Violation violation;
  violation.level = Level::fatal;
  violation.rule = rule;
  violation.text = std::move(text);
  violation.fix = std::move(fix);
  violation.accesses = {
      access(me, site, concat("executes ", instruction)),
      access(arrived_thread(meeting), meeting.site(),
             concat("waits in ", meeting.instruction(), " for lanes ", hex(meeting.mask)))};
  fatal(cluster_of(me), std::move(violation));
}

// What must agree with those who are there already.
void check_same(const char* instruction, const Site& site, const Uniform& uniform,
                const Rendezvous& meeting) {
  if (!same_instruction(instruction, meeting.instruction())) {
    mismatch(
        "collective.instruction", instruction, site, meeting,
        concat("lanes of one ", meeting.mask == kFullMask ? "warp" : "mask",
               " meet in different instructions: ", instruction, " and ", meeting.instruction()),
        "let every lane of the mask execute the same instruction");
  }
  if (!same_site(site, meeting.site())) {
    mismatch("collective.site", instruction, site, meeting,
             concat(instruction, " is executed at ", to_string(site), " by one lane and at ",
                    to_string(meeting.site()), " by another of the same mask"),
             "move the instruction out of the divergent branch");
  }
  for (int i = 0; i < 4; ++i) {
    const auto &mine = uniform.items[i], &theirs = meeting.uniform.items[i];
    if (mine.name == nullptr && theirs.name == nullptr) break;
    if (mine.value == theirs.value) continue;
    mismatch(
        "collective.uniform", instruction, site, meeting,
        concat(instruction, " needs one ", mine.name == nullptr ? theirs.name : mine.name,
               " in all lanes, but this lane passes ", mine.value, " and another ", theirs.value),
        "broadcast the operand first, or compute it from uniform values");
  }
}

// Two lanes that wait for each other in different meetings never go on.
void check_crossing(const char* instruction, uint32_t mask, uint32_t lane, const Site& site,
                    const Rendezvous* open) {
  for (; open != nullptr; open = open->next) {
    if (open->mask == mask || (open->mask >> lane & 1) == 0) continue;
    if ((open->arrived[0] & mask) == 0) continue;
    mismatch("collective.mask", instruction, site, *open,
             concat(instruction, " for lanes ", hex(mask), " meets ", open->instruction(),
                    " for lanes ", hex(open->mask), ": each waits for a lane that is in the other"),
             "use the same mask in both, or separate them by a warp_sync");
  }
}

void unlink(Rendezvous*& head, Rendezvous& meeting) {
  Rendezvous** at = &head;
  while (*at != &meeting) at = &(*at)->next;
  *at = meeting.next;
}

[[noreturn]] void exited_lanes(const Thread& me, const char* instruction, const Site& site,
                               uint32_t mask) {
  fatal(me, "collective.exited", site, concat("executes ", instruction),
        concat(instruction, " for lanes ", hex(mask), ": lanes ", hex(mask & me.warp->exited),
               " have returned from the kernel"),
        "leave returned lanes out of the mask, or let all lanes reach the instruction");
}

}  // namespace

namespace detail {

void warp_rendezvous(const char* instruction, uint32_t mask, void* operands, CollectiveModel model,
                     void* closure, const Site& site, const Uniform& uniform) {
  Thread& me = self();
  Warp& warp = *me.warp;
  const uint32_t bit = 1u << me.lane;
  if ((mask & bit) == 0) {
    fatal(me, "collective.mask", site, concat("executes ", instruction),
          concat(instruction, " for lanes ", hex(mask), " is executed by lane ", me.lane,
                 ", which is not among them"),
          "put every executing lane into the mask");
  }
  mask &= warp.present;
  if ((mask & warp.exited) != 0) exited_lanes(me, instruction, site, mask);
  me.last_site = site;
  if (mask == bit) {
    void* alone[32] = {};
    alone[me.lane] = operands;
    count_instruction(instruction);
    return model(closure, alone, mask);
  }

  Rendezvous*& open = me.block->state->open[warp.index];
  Rendezvous* meeting = open;
  while (meeting != nullptr && meeting->mask != mask) meeting = meeting->next;
  if (open != meeting || (open != nullptr && open->next != nullptr)) {
    check_crossing(instruction, mask, me.lane, site, open);
  }
  if (meeting == nullptr) {
    void* all[32];
    Rendezvous mine(instruction, site, *me.block, warp.index * 32, false, mask, uniform, all);
    mine.next = open;
    open = &mine;
    all[me.lane] = operands;
    mine.arrived[0] = bit;
    cluster_of(me).scheduler->sleep(mine);
    return;
  }
  check_same(instruction, site, uniform, *meeting);
  meeting->operands[me.lane] = operands;
  meeting->arrived[0] |= bit;
  if (meeting->arrived[0] != mask) return cluster_of(me).scheduler->sleep(*meeting);
  unlink(open, *meeting);
  count_instruction(instruction);
  model(closure, meeting->operands, mask);
  cluster_of(me).scheduler->make_ready(warp, mask & ~bit);
}

void warpgroup_rendezvous(const char* instruction, void* operands, CollectiveModel model,
                          void* closure, const Site& site, const Uniform& uniform) {
  Thread& me = self();
  Block& block = *me.block;
  const uint32_t group = me.index / 128;
  if (block.thread_count < 128 * (group + 1)) {
    fatal(
        me, "collective.warpgroup", site, concat("executes ", instruction),
        concat(instruction, " needs a warpgroup of 128 threads; the block has ", block.thread_count,
               " threads, so warps ", group * 4, "-", block.warp_count - 1, " are not one"),
        "launch a multiple of 128 threads");
  }
  for (uint32_t w = group * 4; w < group * 4 + 4; ++w) {
    if (block.warps[w].exited == 0) continue;
    fatal(me, "collective.exited", site, concat("executes ", instruction),
          concat(instruction, ": lanes ", hex(block.warps[w].exited), " of warp ", w,
                 " of the warpgroup have returned from the kernel"),
          "let all 128 threads reach the instruction");
  }
  me.last_site = site;
  Rendezvous*& open = block.state->group_open[group];
  Scheduler& scheduler = *cluster_of(me).scheduler;
  const uint32_t w = me.warp->index % 4, bit = 1u << me.lane;
  if (open == nullptr) {
    void* all[128];
    Rendezvous mine(instruction, site, block, group * 128, true, kFullMask, uniform, all);
    open = &mine;
    all[me.index % 128] = operands;
    mine.arrived[w] = bit;
    return scheduler.sleep(mine);
  }
  Rendezvous& meeting = *open;
  check_same(instruction, site, uniform, meeting);
  meeting.operands[me.index % 128] = operands;
  meeting.arrived[w] |= bit;
  if ((meeting.arrived[0] & meeting.arrived[1] & meeting.arrived[2] & meeting.arrived[3]) !=
      kFullMask) {
    return scheduler.sleep(meeting);
  }
  open = nullptr;
  count_instruction(instruction);
  model(closure, meeting.operands, kFullMask);
  for (uint32_t i = 0; i < 4; ++i) {
    scheduler.make_ready(block.warps[group * 4 + i], i == w ? ~bit : kFullMask);
  }
}

}  // namespace detail

const Waiting* Rendezvous::model_waits() const {
  // The last to arrive runs the model; it is the one that waits here, but not in this meeting.
  const uint32_t end = std::min(first_thread + (group ? 128 : 32), block.thread_count);
  for (uint32_t t = first_thread; t < end; ++t) {
    const Waiting* inner = block.threads[t].waiting;
    if (inner != nullptr && inner != this && same_site(inner->site(), site()) &&
        same_instruction(inner->instruction(), instruction())) {
      return inner;
    }
  }
  return nullptr;
}

const void* Rendezvous::key() const {
  const Waiting* inner = model_waits();
  return inner == nullptr ? this : inner->key();
}

std::string Rendezvous::text() const {
  if (const Waiting* inner = model_waits()) return inner->text();
  const uint32_t warps = group ? 4 : 1;
  std::string text;
  for (uint32_t w = 0; w < warps; ++w) {
    const Warp& warp = block.warps[first_thread / 32 + w];
    const uint32_t missing = mask & warp.present & ~arrived[w];
    if (missing == 0) continue;
    if (!text.empty()) text += "; ";
    text += concat("lanes ", hex(missing), " of warp ", warp.index, " are missing");
    const Thread& one = warp.threads[std::countr_zero(missing)];
    if (one.waiting != nullptr) {
      text += concat(" (lane ", one.lane, " waits in ", one.waiting->instruction(), " at ",
                     to_string(one.waiting->site()), ")");
    }
  }
  return text;
}

void collective_thread_exited(Thread& thread) {
  Rendezvous* open = thread.block->state->open[thread.warp->index];
  for (; open != nullptr; open = open->next) {
    if ((open->mask >> thread.lane & 1) == 0) continue;
    mismatch("collective.exited", "return", thread.last_site, *open,
             concat("lane ", thread.lane, " returns from the kernel while lanes ",
                    hex(open->arrived[0]), " of its warp wait for it in ", open->instruction()),
             "let all lanes of the mask reach the instruction");
  }
  Rendezvous* group = thread.block->state->group_open[thread.index / 128];
  if (group != nullptr) {
    mismatch("collective.exited", "return", thread.last_site, *group,
             concat("a thread returns from the kernel while its warpgroup waits for it in ",
                    group->instruction()),
             "let all 128 threads reach the instruction");
  }
}

void warp_sync(uint32_t mask, const Site& site) {
  Thread& me = self();
  struct {
  } none;
  Warp* warp = me.warp;
  warp_collective(
      "bar.warp.sync", mask, none,
      [warp](const auto& lanes) {
        cluster_of(*warp->threads).memory->warp_sync(*warp, lanes.mask());
      },
      site);
}

uint32_t elect_leader(uint32_t mask, const Site& site) {
  struct Operands {
    uint32_t leader;
  } mine{};
  const uint64_t seed = launch_of(self()).options.seed;
  warp_collective(
      "elect.sync", mask, mine,
      [seed](const Lanes<Operands>& lanes) {
        // The same mask elects the same lane throughout a launch, as it does on the chips.
        uint32_t left = lanes.mask();
        const auto count = static_cast<uint32_t>(std::popcount(left));
        for (uint64_t skip = mix(seed ^ mix(left)) % count; skip > 0; --skip) left &= left - 1;
        const auto leader = static_cast<uint32_t>(std::countr_zero(left));
        for (uint32_t lane : lanes) lanes[lane].leader = leader;
      },
      site);
  return mine.leader;
}

}  // namespace halftone::sim
