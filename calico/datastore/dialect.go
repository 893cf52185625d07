package datastore

import (
	"encoding/json"
	"strings"

	"github.com/contiv-agent/contiv-agent/calico"
)

// Modern converts a key and value to the form that Calico writes from v3.32 on. Policy keys have the object's kind,
// namespace and name, and the tier is in the value; everything else is the same. A policy without an object of a known kind
// stays as it is, as does one that does not parse.
func Modern(kv calico.KV) calico.KV {
	k, err := ParseKey(kv.Key)
	if err != nil || k.Kind != KeyTieredPolicy {
		return kv
	}
	id := k.Object()
	key, ok := PolicyKey(id)
	if !ok || id.FelixName(k.Tier) != k.Name {
		return kv
	}
	if kv.Value == nil {
		kv.Key = key.String()
		return kv
	}
	var p Policy
	if json.Unmarshal(kv.Value, &p) != nil {
		return kv
	}
	p.Tier = k.Tier
	if v, err := NewKV(key, p); err == nil {
		kv.Key, kv.Value = v.Key, v.Value
	}
	return kv
}

// Tiered is the inverse of Modern for a key with a value. ok is false for a delete, which does not name the tier, and for
// values that do not parse.
func Tiered(kv calico.KV) (_ calico.KV, ok bool) {
	k, err := ParseKey(kv.Key)
	if err != nil || k.Kind != KeyPolicy {
		return kv, true
	}
	var p Policy
	if kv.Value == nil || json.Unmarshal(kv.Value, &p) != nil {
		return kv, false
	}
	if p.Tier == "" {
		p.Tier = "default"
	}
	key := Key{Kind: KeyTieredPolicy, Tier: p.Tier, Name: k.PolicyID().FelixName(p.Tier)}
	p.Tier = ""
	v, err := NewKV(key, p)
	if err != nil {
		return kv, false
	}
	kv.Key, kv.Value = v.Key, v.Value
	return kv, true
}

// Of reports whether a key belongs to a set of Calico's sync protocol. felix has all keys that Encode writes; bgp and
// tunnel-ip-allocation have Nodes and pools, and bgp also BIRD's configuration; node-status has none of them.
func Of(set, key string) bool {
	const resources = "/calico/resources/v3/projectcalico.org/"
	kind, _, _ := strings.Cut(strings.TrimPrefix(key, resources), "/")
	own := strings.HasPrefix(key, resources)
	pool := strings.HasPrefix(key, "/calico/v1/ipam/")
	switch set {
	case "felix":
		return !own || kind != ResourceBGPFilters && kind != "caliconodestatuses"
	case "bgp":
		return pool || strings.HasPrefix(key, "/calico/ipam/v2/host/") || own && (kind == ResourceNodes || kind == ResourceBGPConfigurations ||
			kind == ResourceBGPPeers || kind == ResourceBGPFilters)
	case "tunnel-ip-allocation":
		return pool || own && kind == ResourceNodes
	case "node-status":
		return own && kind == "caliconodestatuses"
	}
	return false
}
