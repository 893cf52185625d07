package datastore

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
)

// unmarshal reads JSON into v, a pointer to an empty value.
func (r *reader) unmarshal(data []byte, v any) {
	if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
		r.failField("", "must not be null")
		return
	}
	if err := json.Unmarshal(data, v); err != nil {
		r.failField(locate(data, reflect.TypeOf(v).Elem()), "%s", plain(err))
	}
}

// plain returns a decoder's error without the parts that are reported elsewhere or do not help the value's author.
func plain(err error) string {
	var typ *json.UnmarshalTypeError
	if errors.As(err, &typ) {
		return "must not be a JSON " + typ.Value
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// locate returns the field at which data cannot be decoded into type t; "" if it is the whole value. It serves errors only:
// it decodes everything again, level by level.
func locate(data []byte, t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Struct:
		var fields map[string]json.RawMessage
		if json.Unmarshal(data, &fields) != nil {
			return ""
		}
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			raw, ok := fields[name]
			if ok && !readable(raw, t.Field(i).Type) {
				return joinField(name, locate(raw, t.Field(i).Type))
			}
		}
	case reflect.Slice:
		var list []json.RawMessage
		if json.Unmarshal(data, &list) != nil {
			return ""
		}
		for i, raw := range list {
			if !readable(raw, t.Elem()) {
				return joinField(fieldAt("", i), locate(raw, t.Elem()))
			}
		}
	}
	return ""
}

func readable(data []byte, t reflect.Type) bool {
	return json.Unmarshal(data, reflect.New(t).Interface()) == nil
}

func joinField(field, within string) string {
	if within == "" || strings.HasPrefix(within, "[") {
		return field + within
	}
	return field + "." + within
}
