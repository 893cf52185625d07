// Package replayed turns random clusters into journals of a running agent, and the journals into states of another VPP.
//
// Invariant: a journal, as a killed agent leaves it, replays to the state that the recorded VPP has.
package replayed

import "time"

// testTime is the time of records whose time does not matter.
func testTime() time.Time { return time.Unix(9, 0) }
