// Package punt turns punted packets into requests: redirects to a neighbour, and UDP ports and drop reasons that go to a program's socket.
//
// Invariant: the package refuses values that VPP does not show again, so that a restart finds every object that was made.
package punt
