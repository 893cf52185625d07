// Package limit turns policies and the messages of a calculation graph into the messages that a driver may receive: policies that ask for
// more than their share are closed.
//
// Invariant: a closed policy selects the same endpoints and denies all their traffic. Which policies are closed depends on the present
// policies and sets only.
package limit
