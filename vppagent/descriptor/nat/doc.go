// Package nat turns NAT44-ED into requests: the plugin itself, roles of interfaces, pools and mappings. It also counts and frees sessions.
//
// Invariant: a packet of a mapping that stays is translated at every moment of a change.
package nat
