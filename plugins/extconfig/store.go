package extconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/keyed"
)

// Store is a Bolt file with what each client wants: a bucket per client, in it key → message as protobuf; and beside it another
// one per client for the terms, key → JSON. It is safe for concurrent use.
type Store struct{ db *bbolt.DB }

// clients and allTerms are the buckets that hold the clients' buckets, whose names are the clients' behind a byte (none may be empty).
const (
	clients      = "clients/v1"
	allTerms     = "terms/v1"
	clientPrefix = '/'
)

// lockPatience is how long OpenStore waits for another process to let go of the file.
const lockPatience = 5 * time.Second

// OpenStore opens the file, or makes it and the folder it is in. One process has it at a time.
func OpenStore(path string) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockPatience})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("store %s: another process has it open: %w", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", path, err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists([]byte(clients))
		_, terr := tx.CreateBucketIfNotExists([]byte(allTerms))
		return errors.Join(err, terr)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("store %s: %w", path, err), db.Close())
	}
	return &Store{db: db}, nil
}

// Close waits for what is being written.
func (s *Store) Close() error { return s.db.Close() }

// Load is everything the store has, by client. An entry that cannot be read is told of in unread, one error each, and stays in
// the file: a later version may know it.
func (s *Store) Load() (wants map[string]keyed.Values, unread []error, err error) {
	wants = map[string]keyed.Values{}
	err = s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(clients)).ForEachBucket(func(name []byte) error {
			client := string(bytes.TrimPrefix(name, []byte{clientPrefix}))
			values := keyed.Values{}
			wants[client] = values
			return tx.Bucket([]byte(clients)).Bucket(name).ForEach(func(k, v []byte) error {
				msg, err := decode(string(k), v)
				if err != nil {
					unread = append(unread, fmt.Errorf("client %q: %w", client, err))
					return nil
				}
				values[string(k)] = msg
				return nil
			})
		})
	})
	if err != nil {
		return nil, nil, fmt.Errorf("store: %w", err)
	}
	return wants, unread, nil
}

func decode(key string, value []byte) (proto.Message, error) {
	model, _, found := keyed.Lookup(key)
	if !found {
		return nil, fmt.Errorf("%q: %w", key, keyed.ErrNoModel)
	}
	msg := model.New()
	if err := proto.Unmarshal(value, msg); err != nil {
		return nil, fmt.Errorf("%q: %w", key, err)
	}
	return msg, keyed.Check(key, msg)
}

// writtenTerms is how Terms are written.
type writtenTerms struct {
	Merge  string            `json:"merge,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
}

// LoadTerms is the terms of everything that has some, by client and key.
func (s *Store) LoadTerms() (map[string]map[string]Terms, error) {
	out := map[string]map[string]Terms{}
	err := s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(allTerms)).ForEachBucket(func(name []byte) error {
			terms := map[string]Terms{}
			out[string(bytes.TrimPrefix(name, []byte{clientPrefix}))] = terms
			return tx.Bucket([]byte(allTerms)).Bucket(name).ForEach(func(k, v []byte) error {
				var w writtenTerms
				err := json.Unmarshal(v, &w)
				if err != nil {
					return fmt.Errorf("terms of %q: %w", k, err)
				}
				t := Terms{Labels: w.Labels}
				t.Merge, err = event.ParseMerge(w.Merge)
				terms[string(k)] = t
				return err
			})
		})
	})
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return out, nil
}

// Save writes a change of what a client wants, all of it or nothing: nil messages delete. Terms are those of the messages, by key;
// what is not named has none. It returns when the disk has it.
func (s *Store) Save(client string, changes map[string]proto.Message, terms map[string]Terms) error {
	name := append([]byte{clientPrefix}, client...)
	err := s.db.Update(func(tx *bbolt.Tx) error {
		err := within(tx.Bucket([]byte(clients)), name, func(bucket *bbolt.Bucket) error {
			for _, key := range keyed.Values(changes).Keys() {
				if err := save(bucket, key, changes[key]); err != nil {
					return fmt.Errorf("%q: %w", key, err)
				}
			}
			return nil
		})
		if err != nil || len(terms) == 0 && tx.Bucket([]byte(allTerms)).Bucket(name) == nil {
			return err
		}
		return within(tx.Bucket([]byte(allTerms)), name, func(bucket *bbolt.Bucket) error {
			for key, msg := range changes {
				if err := saveTerms(bucket, key, msg, terms[key]); err != nil {
					return fmt.Errorf("terms of %q: %w", key, err)
				}
			}
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("store: client %q: %w", client, err)
	}
	return nil
}

// within changes the client's bucket, which is there only if there is something in it.
func within(all *bbolt.Bucket, name []byte, change func(*bbolt.Bucket) error) error {
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

func saveTerms(bucket *bbolt.Bucket, key string, msg proto.Message, t Terms) error {
	if msg == nil || t.zero() {
		return bucket.Delete([]byte(key))
	}
	value, err := json.Marshal(writtenTerms{Merge: t.Merge.String(), Labels: t.Labels})
	if err != nil {
		return err
	}
	return bucket.Put([]byte(key), value)
}

func save(bucket *bbolt.Bucket, key string, msg proto.Message) error {
	if msg == nil {
		return bucket.Delete([]byte(key))
	}
	value, err := proto.MarshalOptions{Deterministic: true}.Marshal(msg)
	if err != nil {
		return err
	}
	return bucket.Put([]byte(key), value)
}
