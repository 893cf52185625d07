package extconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/boltstore"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
)

// Store is a Bolt file with the clients' values. Each client has two buckets: one maps key → message as protobuf, the other maps key
// → terms as JSON. A checksum precedes each value. It is safe for concurrent use.
type Store struct {
	file *boltstore.File
}

// clients and allTerms are the buckets that hold the clients' buckets. A byte precedes the client's name in a bucket's name, because
// no name may be empty. The buckets of version 1 had no checksums.
const (
	clients      = "clients/v2"
	allTerms     = "terms/v2"
	clientsV1    = "clients/v1"
	allTermsV1   = "terms/v1"
	clientPrefix = "/"
)

// schema lists the buckets, and those that they replace.
var schema = boltstore.Schema{Buckets: []string{clients, allTerms}, Succeeds: map[string]string{clientsV1: clients, allTermsV1: allTerms}}

// OpenStore opens the file, or creates it and its folder; see boltstore.Open.
func OpenStore(path string) (*Store, error) {
	file, err := boltstore.Open(path, schema)
	if err != nil {
		return nil, err
	}
	return &Store{file}, nil
}

// Remark returns the problem with the file as text for users; "": none.
func (s *Store) Remark() string {
	remark := s.file.Remark()
	if remark != "" && s.file.Lost() {
		remark += "; programs must send all others again"
	}
	return remark
}

// view calls f for every record of one of the buckets of all.
func (s *Store) view(all string, f func(client, key string, value []byte) error) error {
	return s.file.Each(all, func(group, key string, value []byte) error {
		return f(strings.TrimPrefix(group, clientPrefix), key, value)
	})
}

// Close waits for writes in progress.
func (s *Store) Close() error { return s.file.Close() }

// Load returns all stored values by client. For each unreadable entry unread has an error. The entry stays in the file, because a
// later version may be able to read it.
func (s *Store) Load() (wants map[string]kv.Values, unread []error, err error) {
	wants = map[string]kv.Values{}
	err = s.view(clients, func(client, key string, value []byte) error {
		if wants[client] == nil {
			wants[client] = kv.Values{}
		}
		msg, err := decode(key, value)
		if err != nil {
			unread = append(unread, fmt.Errorf("client %q: %w", client, err))
			return nil
		}
		wants[client][key] = msg
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("store: %w", err)
	}
	return wants, unread, nil
}

func decode(key string, value []byte) (proto.Message, error) {
	model, _, found := kv.Lookup(key)
	if !found {
		return nil, fmt.Errorf("%q: %w", key, kv.ErrNoModel)
	}
	msg := model.New()
	if err := proto.Unmarshal(value, msg); err != nil {
		return nil, fmt.Errorf("%q: %w", key, err)
	}
	return msg, kv.Check(key, msg)
}

// writtenTerms is the stored form of Terms.
type writtenTerms struct {
	Merge  string            `json:"merge,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
}

// LoadTerms returns all stored terms, by client and key.
func (s *Store) LoadTerms() (map[string]map[string]Terms, error) {
	out := map[string]map[string]Terms{}
	err := s.view(allTerms, func(client, key string, value []byte) error {
		if out[client] == nil {
			out[client] = map[string]Terms{}
		}
		var w writtenTerms
		err := json.Unmarshal(value, &w)
		if err != nil {
			return fmt.Errorf("terms of %q: %w", key, err)
		}
		t := Terms{Labels: w.Labels}
		t.Merge, err = event.ParseMerge(w.Merge)
		out[client][key] = t
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return out, nil
}

// Save writes a change of a client's values, all of it or nothing: nil messages delete. Terms are those of the messages, by key;
// other messages have none. It returns when the change is on disk.
func (s *Store) Save(client string, changes map[string]proto.Message, terms map[string]Terms) error {
	err := s.file.Update(func(tx *boltstore.Tx) error {
		for _, key := range kv.Values(changes).Keys() {
			if err := save(tx, clientPrefix+client, key, changes[key], terms[key]); err != nil {
				return fmt.Errorf("%q: %w", key, err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("store: client %q: %w", client, err)
	}
	return nil
}

// save writes an item with its terms; nil: it deletes both.
func save(tx *boltstore.Tx, group, key string, msg proto.Message, t Terms) error {
	if msg == nil {
		return errors.Join(tx.Delete(clients, group, key), tx.Delete(allTerms, group, key))
	}
	value, err := proto.MarshalOptions{Deterministic: true}.Marshal(msg)
	if err == nil {
		err = tx.Put(clients, group, key, value)
	}
	if err != nil {
		return err
	}
	if t.zero() {
		return tx.Delete(allTerms, group, key)
	}
	if value, err = json.Marshal(writtenTerms{Merge: t.Merge.String(), Labels: t.Labels}); err != nil {
		return err
	}
	return tx.Put(allTerms, group, key, value)
}
