package datastore

import (
	"encoding/json"
	"strings"
)

// Modern is a key and value as Calico writes them from v3.32 on: policies are named by the kind of their object, its namespace
// and its name, and the tier is in the value. Everything else is the same. A policy without an object of a known kind stays
// as it is, and so does one that does not parse.
func Modern(kv KV) KV {
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
	if v, err := value(key, p); err == nil {
		kv.Key, kv.Value = v.Key, v.Value
	}
	return kv
}

// Tiered is the inverse of Modern, for what has a value. A delete does not say which tier the policy was in: ok is false, as for
// what does not parse.
func Tiered(kv KV) (_ KV, ok bool) {
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
	v, err := value(key, p)
	if err != nil {
		return kv, false
	}
	kv.Key, kv.Value = v.Key, v.Value
	return kv, true
}

// Of tells whether a key is one of a set that Calico's sync protocol has a name for: felix has all that Encode writes, bgp and
// tunnel-ip-allocation have Nodes and pools, and bgp what BIRD is configured from; node-status has none of them.
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
