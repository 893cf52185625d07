package descriptor

import (
	"strings"

	vppacl "go.fd.io/govpp/binapi/acl"

	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
)

// DenyACL describes the ACL that denies everything.
func DenyACL() *Descriptor { return fixedACL("acl-deny", denyKey, "d", false, newDenyACL) }

// fixedACL describes an ACL that is not wanted for itself: other values have it for a part. Its tag has that kind.
func fixedACL(name, key, kind string, fingerprint bool, state func() *accessList) *Descriptor {
	d := Spec[*acl.ACL, *accessList]{
		Name: name, Prefix: key, Tagged: true,
		Compile: func(key string, _ *acl.ACL) (*accessList, error) { return nil, &DerivedError{Key: key} },
		Message: (*accessList).message, Equal: sameRules,
		Create: createACL, Update: replaceACL, Delete: deleteACL,
		Dumps: func(*World, Candidates) []Request { return []Request{dump(idACLs, &vppacl.ACLDump{ACLIndex: none})} },
		Retrieve: func(w *World, d *Dump, c Candidates) ([]Found, error) {
			return retrieveFixed(w, d, c, key, func(tag string) bool {
				_, _, ours := parseTag(tag, kind, fingerprint)
				return ours
			}, state)
		},
	}.Descriptor()
	d.Merge = func(_ any, parts []any) any { return parts[0] }
	d.Replace = replaceBeside
	return d
}

// fixed reports that the ACL with a key is such a one.
func fixed(key string) bool { return !strings.HasPrefix(key, aclPrefix) }

func retrieveFixed(w *World, d *Dump, c Candidates, key string, ours func(tag string) bool, state func() *accessList) ([]Found, error) {
	all, err := details[*vppacl.ACLDetails](d, idACLs)
	if err != nil {
		return nil, err
	}
	w.acls.clear(func(k string) bool { return k == key })
	var out []Found
	for _, m := range all {
		tag := text(m.Tag)
		if !ours(tag) {
			continue
		}
		for i := range m.R {
			clearUnused(&m.R[i])
		}
		w.acls.count(m.ACLIndex, len(m.R))
		l := state()
		l.rules, l.tag = m.R, tag
		if len(out) > 0 {
			out[0].State = w.preferred(out[0].State.(*accessList), l, m.ACLIndex, c)
			continue
		}
		w.acls.set(key, m.ACLIndex)
		out = append(out, Found{Key: key, State: l, Ours: true})
	}
	if len(out) > 0 {
		w.acls.has(out[0].State.(*accessList))
	}
	return out, nil
}
