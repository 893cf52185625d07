// Package punt turns punted packets into requests: redirects to a neighbour, and UDP ports and drop reasons that go to a program's socket.
//
// Invariant: what VPP does not show again is refused, so that a restart finds everything that was made.
package punt
