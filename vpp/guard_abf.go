package vpp

import (
	"fmt"
	"slices"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/abf"
	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/ip_types"
)

// forwarding is the shadow of ABF: policies and their attachments.
type forwarding struct {
	policies shadow[uint32, abfPolicy, abfChange]
	attached shadow[abfPlace, abfFamily, abfFamily]
	// dumpedPolicies and dumpedAttached mean that the shadow has every policy or attachment of VPP.
	dumpedPolicies, dumpedAttached bool
}

// abfPath has the fields by which VPP distinguishes the paths of a policy: neither weight nor preference
// (fib_path_cmp_w_route_path, VPP 24.06).
type abfPath struct {
	next  ip_types.AddressUnion
	proto fib_types.FibPathNhProto
	swIf  uint32
}

// abfPolicy is an existing policy; without paths it crashes VPP at its next change.
type abfPolicy struct {
	exists bool
	paths  []abfPath
}

func (p abfPolicy) nothing() bool { return !p.exists }

type abfChange struct {
	add   bool
	paths []abfPath
}

func (c abfChange) applyTo(p abfPolicy) abfPolicy {
	if c.add {
		return abfPolicy{exists: true, paths: append(slices.Clone(p.paths), c.paths...)}
	}
	left := slices.DeleteFunc(slices.Clone(p.paths), func(o abfPath) bool { return slices.Contains(c.paths, o) })
	return abfPolicy{exists: len(left) > 0, paths: left}
}

// abfPlace is where a policy can be attached once.
type abfPlace struct{ policy, swIf uint32 }

// abfFamily is the family of an attachment: 0 none, 4, 6. As a change it is the new value.
type abfFamily uint8

func (f abfFamily) nothing() bool               { return f == 0 }
func (f abfFamily) applyTo(abfFamily) abfFamily { return f }

func familyOf(m *abf.AbfItfAttachAddDel) abfFamily {
	switch {
	case !m.IsAdd:
		return 0
	case m.Attach.IsIPv6:
		return 6
	}
	return 4
}

func abfPaths(list []fib_types.FibPath) []abfPath {
	out := make([]abfPath, 0, len(list))
	for _, p := range list {
		out = append(out, abfPath{p.Nh.Address, p.Proto, p.SwIfIndex})
	}
	return out
}

func placeOf(a abf.AbfItfAttach) abfPlace { return abfPlace{a.PolicyID, uint32(a.SwIfIndex)} }

// isAttached reports whether the policy is, or may be, attached anywhere.
func (f *forwarding) isAttached(policy uint32) bool {
	for k, c := range f.attached.cells {
		if k.policy == policy && (c.sent != 0 || c.acked != 0) {
			return true
		}
	}
	return false
}

// flies reports whether an outstanding message concerns the policy.
func (f *forwarding) flies(policy uint32) bool {
	if _, ops := f.policies.flying(policy); len(ops) > 0 {
		return true
	}
	for k, c := range f.attached.cells {
		if k.policy == policy && len(c.ops) > 0 {
			return true
		}
	}
	return false
}

func (f *forwarding) sent(msg api.Message) {
	switch m := msg.(type) {
	case *abf.AbfPolicyAddDel:
		f.policies.sendOp(m.Policy.PolicyID, abfChange{m.IsAdd, abfPaths(m.Policy.Paths)})
	case *abf.AbfItfAttachAddDel:
		f.attached.sendOp(placeOf(m.Attach), familyOf(m))
	}
}

func (f *forwarding) answered(msg api.Message, reply Reply) {
	ok := reply.Err == nil
	switch m := msg.(type) {
	case *abf.AbfPolicyAddDel:
		f.policies.settleOp(m.Policy.PolicyID, ok)
	case *abf.AbfItfAttachAddDel:
		f.attached.settleOp(placeOf(m.Attach), ok)
	case *abf.AbfPolicyDump:
		if !ok {
			return
		}
		found := map[uint32]abfPolicy{}
		for _, d := range reply.Details {
			if p, ok := d.(*abf.AbfPolicyDetails); ok {
				found[p.Policy.PolicyID] = abfPolicy{true, abfPaths(p.Policy.Paths)}
			}
		}
		f.policies.replace(func(abfPolicy) bool { return true }, found)
		f.dumpedPolicies = true
	case *abf.AbfItfAttachDump:
		if !ok {
			return
		}
		found := map[abfPlace]abfFamily{}
		for _, d := range reply.Details {
			if a, ok := d.(*abf.AbfItfAttachDetails); ok {
				found[placeOf(a.Attach)] = familyOf(&abf.AbfItfAttachAddDel{IsAdd: true, Attach: a.Attach})
			}
		}
		f.attached.replace(func(abfFamily) bool { return true }, found)
		f.dumpedAttached = true
	}
}

func (f *forwarding) judgePolicy(m *abf.AbfPolicyAddDel) string {
	id := m.Policy.PolicyID
	has, paths := f.policies.expectedState(id), abfPaths(m.Policy.Paths)
	for i, p := range paths {
		if slices.Contains(paths[:i], p) {
			return fmt.Sprintf("policy %d: a path occurs twice", id)
		}
	}
	switch {
	case !f.dumpedPolicies || !f.dumpedAttached:
		return "VPP's ABF state is not known: dump policies and attachments first"
	case has.exists && len(has.paths) == 0:
		return fmt.Sprintf("policy %d has no paths: its next change crashes VPP", id)
	case m.IsAdd && slices.ContainsFunc(paths, func(p abfPath) bool { return slices.Contains(has.paths, p) }):
		return fmt.Sprintf("policy %d has that path already", id)
	case !m.IsAdd && has.exists && f.isAttached(id) && !(abfChange{paths: paths}).applyTo(has).exists:
		return fmt.Sprintf("would remove the last path of policy %d, which is attached", id)
	}
	return ""
}

func (f *forwarding) judgeAttachment(m *abf.AbfItfAttachAddDel) string {
	id := m.Attach.PolicyID
	has := f.attached.expectedState(placeOf(m.Attach))
	switch {
	case !f.dumpedPolicies || !f.dumpedAttached:
		return "VPP's ABF state is not known: dump policies and attachments first"
	case m.Attach.SwIfIndex > maxIndex:
		return fmt.Sprintf("interface %d", m.Attach.SwIfIndex)
	case m.IsAdd && !f.policies.expectedState(id).exists:
		return fmt.Sprintf("policy %d does not exist", id)
	case !m.IsAdd && has != 0 && (has == 6) != m.Attach.IsIPv6:
		return fmt.Sprintf("policy %d is attached for IPv%d", id, has)
	}
	return ""
}

func abfRules() []Rule {
	return []Rule{
		{
			Name: "abf-policy", Messages: []string{"abf_policy_add_del"}, Stateful: true,
			Source: "abf_policy.c abf_policy_update (drops its lock on the path-list it keeps) and abf_policy_delete, a path added twice executed on VPP 24.06 and 25.10, the last one removed on 24.06",
			Harm:   "a path added twice, or the last one removed of a policy that is attached, leaves a policy whose next change crashes VPP",
			judge: func(g *Guard, msg api.Message) string {
				return g.forwarding.judgePolicy(msg.(*abf.AbfPolicyAddDel))
			},
			hinges: func(g *Guard, msg api.Message) bool {
				return g.forwarding.flies(msg.(*abf.AbfPolicyAddDel).Policy.PolicyID)
			},
		}, {
			Name: "abf-attach", Messages: []string{"abf_itf_attach_add_del"}, Stateful: true,
			Source: "abf_itf_attach.c abf_itf_attach, abf_itf_detach (only assertions look); the other family executed on VPP 24.06 and 25.10, a missing policy read only",
			Harm:   "VPP crashes on a policy that does not exist, or is attached for the other family",
			judge: func(g *Guard, msg api.Message) string {
				return g.forwarding.judgeAttachment(msg.(*abf.AbfItfAttachAddDel))
			},
			hinges: func(g *Guard, msg api.Message) bool {
				return g.forwarding.flies(msg.(*abf.AbfItfAttachAddDel).Attach.PolicyID)
			},
		},
	}
}
