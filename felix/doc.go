// Package felix turns the pipes between Felix and its external dataplane driver into messages, events and statuses, and back.
//
//	Felix ─ fd 3: ToDataplane ──▶ Reader ─▶ Driver ─ event.Felix, event.SyncStatus ─▶ controller
//	      ◀─ fd 4: FromDataplane ─ Writer ◀─ Driver ◀─ what VPP has acknowledged ────────┘
//
// Invariant: nothing that is read can crash, make more memory needed than was sent, or be skipped without being said.
package felix
