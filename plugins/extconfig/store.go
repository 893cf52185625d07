package extconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
)

// Store is a Bolt file with the clients' values. Each client has two buckets: one maps key → message as protobuf, the other maps key
// → terms as JSON. A checksum precedes each value. It is safe for concurrent use.
type Store struct {
	db     *bbolt.DB // nil: the file can be neither read nor written
	remark string    // problem with the file; "": none

	mu     sync.Mutex
	broken error // why nothing can be written; nil: the file is writable
}

// clients and allTerms are the buckets that hold the clients' buckets. A byte precedes the client's name in a bucket's name, because
// no name may be empty. The buckets of version 1 had no checksums.
const (
	clients      = "clients/v2"
	allTerms     = "terms/v2"
	clientsV1    = "clients/v1"
	allTermsV1   = "terms/v1"
	clientPrefix = '/'
)

// succeeds maps old buckets to the buckets that replaced them.
var succeeds = map[string]string{clientsV1: clients, allTermsV1: allTerms}

// lockPatience is how long OpenStore waits until another process closes the file.
const lockPatience = 5 * time.Second

// Remark returns the problem with the file as text for users; "": none.
func (s *Store) Remark() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return s.broken.Error()
	}
	return s.remark
}

// view calls f for every record of one of the buckets of all.
func (s *Store) view(all string, f func(client, key string, value []byte) error) error {
	if s.db == nil {
		return nil
	}
	pass := func(r record, value []byte) error {
		return f(string(bytes.TrimPrefix(r.client, []byte{clientPrefix})), string(r.key), value)
	}
	return guarded(func() error {
		return s.db.View(func(tx *bbolt.Tx) error {
			err := eachRecord(tx, all, func(r record) error {
				value, ok := unframe(r)
				if !ok {
					return fmt.Errorf("%q: %w: its checksum is wrong", r.key, errDamaged)
				}
				return pass(r, value)
			})
			old := map[string]string{clients: clientsV1, allTerms: allTermsV1}[all] // it exists only where migrate could not write
			return errors.Join(err, eachRecord(tx, old, func(r record) error { return pass(r, r.framed) }))
		})
	})
}

// Close waits for writes in progress.
func (s *Store) Close() error {
	if s.db == nil {
		return nil
	}
	return guarded(s.db.Close)
}

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
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return s.broken
	}
	err := guarded(func() error {
		return s.db.Update(func(tx *bbolt.Tx) error { return saveAll(tx, client, changes, terms) })
	})
	if errors.Is(err, errDamaged) {
		s.broken = fmt.Errorf("store: %w; the next start sets it aside", err) // bbolt may still hold its lock
	}
	if err != nil {
		return fmt.Errorf("store: client %q: %w", client, err)
	}
	return nil
}

func saveAll(tx *bbolt.Tx, client string, changes map[string]proto.Message, terms map[string]Terms) error {
	name := append([]byte{clientPrefix}, client...)
	err := changeBucket(tx.Bucket([]byte(clients)), name, func(bucket *bbolt.Bucket) error {
		for _, key := range kv.Values(changes).Keys() {
			if err := save(bucket, name, key, changes[key]); err != nil {
				return fmt.Errorf("%q: %w", key, err)
			}
		}
		return nil
	})
	if err != nil || len(terms) == 0 && tx.Bucket([]byte(allTerms)).Bucket(name) == nil {
		return err
	}
	return changeBucket(tx.Bucket([]byte(allTerms)), name, func(bucket *bbolt.Bucket) error {
		for key, msg := range changes {
			if err := saveTerms(bucket, name, key, msg, terms[key]); err != nil {
				return fmt.Errorf("terms of %q: %w", key, err)
			}
		}
		return nil
	})
}

// changeBucket changes the client's bucket. The bucket exists only while it has entries.
func changeBucket(all *bbolt.Bucket, name []byte, change func(*bbolt.Bucket) error) error {
	bucket, err := all.CreateBucketIfNotExists(name)
	if err == nil {
		err = change(bucket)
	}
	if err != nil {
		return err
	}
	if first, _ := bucket.Cursor().First(); first == nil {
		return all.DeleteBucket(name)
	}
	return nil
}

func saveTerms(bucket *bbolt.Bucket, client []byte, key string, msg proto.Message, t Terms) error {
	if msg == nil || t.zero() {
		return bucket.Delete([]byte(key))
	}
	value, err := json.Marshal(writtenTerms{Merge: t.Merge.String(), Labels: t.Labels})
	if err != nil {
		return err
	}
	return bucket.Put([]byte(key), frame([]byte(allTerms), client, []byte(key), value))
}

func save(bucket *bbolt.Bucket, client []byte, key string, msg proto.Message) error {
	if msg == nil {
		return bucket.Delete([]byte(key))
	}
	value, err := proto.MarshalOptions{Deterministic: true}.Marshal(msg)
	if err != nil {
		return err
	}
	return bucket.Put([]byte(key), frame([]byte(clients), client, []byte(key), value))
}
