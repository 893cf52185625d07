package descriptor

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// owner starts every tag this agent sets.
const owner = "ca1:"

// Owned reports whether a tag is one an agent of ours has set.
func Owned(tag string) bool { return strings.HasPrefix(tag, owner) }

// maxTag is what VPP keeps of a tag of 64 bytes: the last is NUL (nat44_ed.api 5.5.0, interface.api 3.2.3; VPP 24.06).
const maxTag = 63

var tagEncoding = base32.StdEncoding.WithPadding(base32.NoPadding) // read only

// newTag is the owner, the kind, a fingerprint of what dumps cannot show (8 characters, "" if nothing), and the name:
// "ca1:n:ABCDEFGH:default/web". A name too long for VPP is hashed and starts with "#", which no name of ours does.
func newTag(kind, fingerprint, name string) string {
	colon := ""
	if fingerprint != "" {
		colon = ":"
	}
	if len(owner)+len(kind)+1+len(fingerprint)+len(colon)+len(name) > maxTag || strings.HasPrefix(name, "#") {
		name = hashedName(name)
	}
	return owner + kind + ":" + fingerprint + colon + name
}

// hashedName is 128 bits of SHA-256: two labels of one node never collide by accident.
func hashedName(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "#" + tagEncoding.EncodeToString(sum[:16])
}

// fingerprint is 40 bits of SHA-256 in 8 characters.
func fingerprint(s string) string {
	if s == "" {
		return "-"
	}
	sum := sha256.Sum256([]byte(s))
	return tagEncoding.EncodeToString(sum[:5])
}

// parseTag splits a tag of ours of that kind; ok is false for every other tag.
func parseTag(tag, kind string, withFingerprint bool) (print, name string, ok bool) {
	rest, ok := strings.CutPrefix(tag, owner+kind+":")
	if !ok {
		return "", "", false
	}
	if !withFingerprint {
		return "", rest, true
	}
	print, name, ok = strings.Cut(rest, ":")
	return print, name, ok
}

// ownedInterface returns the name of the interface a tag of ours is on. Hashed names are looked up among those wanted.
func (w *World) ownedInterface(tag string) (string, bool) {
	_, name, ok := parseTag(tag, "i", false)
	return name, ok
}
