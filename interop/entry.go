package interop

import (
	"encoding/json"
	"fmt"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/api"
	v1 "github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/net"
)

// Entry is an update as the datastore has it. Its JSON is a line of `contiv-agent calc` and of the peers.
type Entry struct {
	Key     string `json:"key"`
	Value   string `json:"value,omitempty"`
	Deleted bool   `json:"deleted,omitempty"`
}

// Entries are a change in the form of the datastore. The values are Calico's own types, written by the standard library:
// what Calico uses for that misreads labels with this Go.
func (c Change) Entries() ([]Entry, error) {
	var out []Entry
	for _, u := range c.Felix {
		e, err := entry(u)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Key, err)
		}
		out = append(out, e)
	}
	return out, nil
}

func entry(u api.Update) (e Entry, err error) {
	if e.Key, err = v1.KeyToDefaultPath(u.Key); err != nil {
		return e, err
	}
	switch value := u.Value.(type) {
	case nil:
		e.Deleted = true
	case string:
		e.Value = value
	case bool, *net.IP:
		e.Value = fmt.Sprint(value)
	default:
		raw, err := json.Marshal(value)
		e.Value = string(raw)
		return e, err
	}
	return e, nil
}
