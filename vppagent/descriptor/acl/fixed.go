package acl

import (
	"strings"

	vppacl "go.fd.io/govpp/binapi/acl"

	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// DenyACL describes the ACL that denies everything.
func DenyACL() *descriptor.Descriptor { return fixedACL("acl-deny", denyKey, "d", false, newDenyACL) }

// fixedACL describes an ACL that exists only as a part of other values. Its tag has that kind.
func fixedACL(name, key, kind string, fingerprint bool, state func() *accessList) *descriptor.Descriptor {
	d := descriptor.Spec[*acl.ACL, *accessList]{
		Name: name, Prefix: key, Tagged: true,
		Compile: func(key string, _ *acl.ACL) (*accessList, error) { return nil, &descriptor.DerivedError{Key: key} },
		Message: (*accessList).message, Equal: sameRules,
		Create: createACL, Update: replaceACL, Delete: deleteACL,
		Dumps: func(*descriptor.World, descriptor.Candidates) []descriptor.Request {
			return []descriptor.Request{descriptor.DumpRequest(idACLs, &vppacl.ACLDump{ACLIndex: descriptor.None})}
		},
		Retrieve: func(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
			return retrieveFixed(w, d, c, key, func(tag string) bool {
				_, _, ours := descriptor.ParseTag(tag, kind, fingerprint)
				return ours
			}, state)
		},
	}.Descriptor()
	d.Merge = func(_ any, parts []any) any { return parts[0] }
	d.Replace = replaceBeside
	return d
}

// fixed reports that the ACL with a key is fixed.
func fixed(key string) bool { return !strings.HasPrefix(key, aclPrefix) }

func retrieveFixed(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates, key string, ours func(tag string) bool, state func() *accessList) ([]descriptor.Found, error) {
	all, err := descriptor.Details[*vppacl.ACLDetails](d, idACLs)
	if err != nil {
		return nil, err
	}
	factsOf(w).acls.clear(func(k string) bool { return k == key })
	var out []descriptor.Found
	for _, m := range all {
		tag := descriptor.FixedText(m.Tag)
		if !ours(tag) {
			continue
		}
		for i := range m.R {
			clearUnused(&m.R[i])
		}
		factsOf(w).acls.count(m.ACLIndex, len(m.R))
		l := state()
		l.rules, l.tag = m.R, tag
		if len(out) > 0 {
			out[0].State = preferredACL(w, out[0].State.(*accessList), l, m.ACLIndex, c)
			continue
		}
		factsOf(w).acls.set(key, m.ACLIndex)
		out = append(out, descriptor.Found{Key: key, State: l, Ours: true})
	}
	if len(out) > 0 {
		factsOf(w).acls.has(out[0].State.(*accessList))
	}
	return out, nil
}
