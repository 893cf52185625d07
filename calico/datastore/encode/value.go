package encode

import (
	"github.com/contiv-agent/contiv-agent/calico"
	"github.com/contiv-agent/contiv-agent/calico/datastore"
)

func one(kv calico.KV, err error) ([]calico.KV, error) {
	if err != nil || kv.Value == nil {
		return nil, err
	}
	return []calico.KV{kv}, nil
}

// values joins the KVs of several keys.
func values(list ...func() (calico.KV, error)) ([]calico.KV, error) {
	var out []calico.KV
	for _, make := range list {
		kv, err := make()
		if err != nil {
			return nil, err
		}
		out = append(out, kv)
	}
	return out, nil
}

// deferValue returns a deferred call of value, for values.
func deferValue(k datastore.Key, v any) func() (calico.KV, error) {
	return func() (calico.KV, error) { return datastore.NewKV(k, v) }
}

// deferText returns the KV of a value written as it is.
func deferText(k datastore.Key, v string) func() (calico.KV, error) {
	return func() (calico.KV, error) { return calico.KV{Key: k.String(), Value: []byte(v)}, nil }
}
