package vpp

import (
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/policer"
)

// policers is the shadow of the policers that this connection has put on interfaces.
type policers struct {
	shadow[policerPlace, policerName, policerName]
}

type policerPlace struct {
	swIf   uint32
	output bool
}

// policerName is the policer of a place; "": none, or one that the guard does not know. As a change it is the new value.
type policerName string

func (n policerName) nothing() bool                   { return n == "" }
func (n policerName) applyTo(policerName) policerName { return n }

// applied returns what a message does to the shadow; false: nothing.
func (*policers) applied(msg api.Message) (at policerPlace, name policerName, is bool) {
	put := func(swIf uint32, output bool, name string, apply bool) (policerPlace, policerName, bool) {
		if !apply {
			name = ""
		}
		return policerPlace{swIf, output}, policerName(name), true
	}
	switch m := msg.(type) {
	case *policer.PolicerInput:
		return put(uint32(m.SwIfIndex), false, m.Name, m.Apply)
	case *policer.PolicerOutput:
		return put(uint32(m.SwIfIndex), true, m.Name, m.Apply)
	}
	return at, "", false
}

func judgeApply(g *Guard, msg api.Message) string {
	at, name, _ := g.policers.applied(msg)
	has := g.policers.expectedState(at)
	return when(name != "" && has != "", "interface %d has policer %q", at.swIf, has)
}

func policerRules() []Rule {
	const source = "policer.c policer_input (it counts, and looks at nothing), node_funcs.c vnet_policer_inline, VPP 25.10; taken to be so in VPP 24.06"
	return []Rule{
		{
			Name: "policer-twice", Messages: []string{"policer_input", "policer_output"}, Stateful: true, Source: source,
			Harm: "a policer that is applied twice stays when it is removed once, without its number: the next packet crashes VPP", judge: judgeApply,
		},
		stateful("policer-applied", source, "packets meet a policer that does not exist, or another that gets its number",
			func(g *Guard, m *policer.PolicerAddDel) string {
				for at, c := range g.policers.cells {
					if !m.IsAdd && (string(c.sent) == m.Name || string(c.acked) == m.Name) {
						return when(c.sent != "", "policer %q is on interface %d", m.Name, at.swIf)
					}
				}
				return when(m.IsAdd && len(m.Name) > maxTag, "name of %d bytes, VPP keeps %d", len(m.Name), maxTag)
			}),
	}
}
