package descriptor

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"github.com/contiv-agent/contiv-agent/kv"
)

// owner starts every tag this agent sets.
const TagOwner = "ca1:"

// Owned reports whether an agent of ours set a tag.
func Owned(tag string) bool { return strings.HasPrefix(tag, TagOwner) }

// maxTag is the usable part of a tag of 64 bytes: the last is NUL (nat44_ed.api 5.5.0, interface.api 3.2.3; VPP 24.06).
const MaxTag = 63

var TagEncoding = base32.StdEncoding.WithPadding(base32.NoPadding) // read only

// NewTag returns owner, kind, a fingerprint of the state that dumps cannot show (8 characters, or ""), and name:
// "ca1:n:ABCDEFGH:default/web". A name too long for VPP is hashed and starts with "#", which no name of ours does.
func NewTag(kind, fingerprint, name string) string {
	colon := ""
	if fingerprint != "" {
		colon = ":"
	}
	if len(TagOwner)+len(kind)+1+len(fingerprint)+len(colon)+len(name) > MaxTag || strings.HasPrefix(name, "#") {
		name = HashedName(name)
	}
	return TagOwner + kind + ":" + fingerprint + colon + name
}

// HashedName is 128 bits of SHA-256: two labels of one node never collide by accident.
func HashedName(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "#" + TagEncoding.EncodeToString(sum[:16])
}

// Fingerprint is 40 bits of SHA-256 in 8 characters.
func Fingerprint(s string) string {
	if s == "" {
		return "-"
	}
	sum := sha256.Sum256([]byte(s))
	return TagEncoding.EncodeToString(sum[:5])
}

// ParseTag splits a tag of ours of that kind; ok is false for every other tag.
func ParseTag(tag, kind string, withFingerprint bool) (print, name string, ok bool) {
	rest, ok := strings.CutPrefix(tag, TagOwner+kind+":")
	if !ok {
		return "", "", false
	}
	if !withFingerprint {
		return "", rest, true
	}
	print, name, ok = strings.Cut(rest, ":")
	return print, name, ok
}

// ownedInterface returns the name of the interface that carries a tag of ours. It looks hashed names up among the wanted ones.
func (w *World) ownedInterface(tag string) (string, bool) {
	_, name, ok := ParseTag(tag, "i", false)
	return name, ok
}

// NamesPod reports that another client made the interface for a pod: its tag is "namespace/name", or contains it as CNIs do:
// "namespace/name-eth0".
func (i *Iface) NamesPod() bool {
	if i.Index == 0 || i.Ours || i.Sub {
		return false
	}
	before, after, ok := strings.Cut(i.Tag, "/")
	return ok && before != "" && after != "" && !strings.Contains(after, "/")
}

// OfPod reports that a value's name of an interface is a pod's: another client made it for a pod (NamesPod), or a value of ours does
// (kv.PodInterface), and VPP need not have it yet. An interface that VPP's command line does not find by its name is none.
func (w *World) OfPod(name string) bool {
	i, ok := w.byName[name]
	if !ok {
		return kv.IsPodInterface(name)
	}
	return i.OfPod() && i.Nameable()
}

// OfPod reports that the interface is a pod's: another client or a value of ours made it for one.
func (i *Iface) OfPod() bool { return i.NamesPod() || i.Ours && kv.IsPodInterface(i.Name) }
