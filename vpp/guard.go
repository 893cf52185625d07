package vpp

import (
	"fmt"
	"sync"

	"go.fd.io/govpp/api"
)

// GuardError is the error of a message that the guard refused.
type GuardError struct {
	// Message is the message's name, Rule the rule's name, Why the problem of this message.
	Message, Rule, Why string
	// Stateful means that the verdict depends on VPP's state: the same message may pass later. Without it the message never
	// passes.
	Stateful bool
	// Absent means that the message would remove something that does not exist.
	Absent bool

	outstanding bool // may pass once outstanding messages are answered
}

func (e *GuardError) Error() string {
	return fmt.Sprintf("%s refused by guard rule %s: %s", e.Message, e.Rule, e.Why)
}

// absent is the text of a rule for the removal of something that does not exist.
const absent = "the redirect does not exist"

// Rule forbids one kind of harmful message.
type Rule struct {
	// Name is stable: it appears in errors and in documentation.
	Name string
	// Messages are the names of the messages that the rule checks.
	Messages []string
	// Source is the place in VPP that does the harm: file or handler, and version.
	Source string
	// Harm is what VPP would do.
	Harm string
	// Stateful means that the verdict depends on VPP's state, not on the message alone.
	Stateful bool

	// judge returns the problem of m, or "".
	judge func(g *Guard, m api.Message) string
	// hinges reports whether m, harmless if all outstanding messages succeed, would do harm if some of them fail; nil:
	// never.
	hinges func(g *Guard, m api.Message) bool
}

// stateful makes a rule for messages of one type whose verdict depends on VPP's state.
func stateful[M api.Message](name, source, harm string, judge func(g *Guard, m M) string) Rule {
	var m M
	return Rule{
		Name: name, Messages: []string{m.GetMessageName()}, Source: source, Harm: harm, Stateful: true,
		judge: func(g *Guard, msg api.Message) string { return judge(g, msg.(M)) },
	}
}

// stateless makes a rule for messages of one type whose verdict depends on the message alone.
func stateless[M api.Message](name, source, harm string, judge func(m M) string) Rule {
	var m M
	return Rule{
		Name: name, Messages: []string{m.GetMessageName()}, Source: source, Harm: harm,
		judge: func(_ *Guard, msg api.Message) string { return judge(msg.(M)) },
	}
}

// when describes a problem, if it exists.
func when(exists bool, format string, args ...any) string {
	if !exists {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// Guard refuses messages known to crash or silently corrupt VPP. It keeps a shadow of the parts of VPP's state that the
// rules need. The shadow comes from dumps and acknowledged writes on this connection, with outstanding writes applied on
// top. If a message is harmless or fatal depending on unknown state, the guard refuses it and asks for the dump. The zero
// value is ready; methods are safe for concurrent use.
type Guard struct {
	// AllowDisable permits nat44_ed_plugin_enable_disable{enable:false}, which deletes all NAT state of every owner, and
	// cnat_session_purge, which deletes all translations. The agent never needs either. Set before use.
	AllowDisable bool

	mu       sync.Mutex
	rules    map[string][]Rule // by message name
	mappings shadow[mappingKey, mapping, mappingChange]
	allLB    bool // mappings contains every LB mapping of VPP
	roles    shadow[uint32, flags, flagChange]
	outputs  shadow[uint32, flags, flagChange]
	traits
	routes routes
	// forwarding is the shadow of ABF, redirects that of punt redirects.
	forwarding forwarding
	redirects  redirects
	cnat       cnatShadow
	classifier classifier
	policers   policers
	view       mappingView // of the message being checked
}

// traits are facts of a VPP that no message changes.
type traits struct {
	workers  int  // NAT workers, 0: unknown
	byteIPv6 bool // ACLs match IPv6 prefixes by whole bytes only
}

// NewGuard returns a guard without knowledge of VPP's state.
func NewGuard() *Guard { return &Guard{} }

// maxTag is the longest tag that VPP keeps: the 64th byte is its NUL.
const maxTag = 63

func longTag(tag string) string {
	if len(tag) > maxTag {
		return fmt.Sprintf("tag of %d bytes, VPP keeps %d", len(tag), maxTag)
	}
	return ""
}
