// Package felix turns the pipes between Felix and its external dataplane driver into messages, events and statuses, and
// back.
//
//	Felix ─ fd 3: ToDataplane ──▶ Reader ─▶ Driver ─ event.Felix, event.SyncStatus ─▶ controller
//	      ◀─ fd 4: FromDataplane ─ Writer ◀─ Driver ◀─ what VPP has acknowledged ────────┘
//
// Invariant: no input can cause a panic or make the reader allocate more memory than the bytes received. The driver never
// skips input without reporting it.
package felix
