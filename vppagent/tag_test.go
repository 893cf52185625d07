package vppagent_test

import "reflect"

// setTag replaces a tag of ours in a binary-API message of any type by a foreign one.
func setTag(m any) {
	if f := reflect.ValueOf(m).Elem().FieldByName("Tag"); f.IsValid() && f.Kind() == reflect.String && f.String() != "" {
		f.SetString("somebody else")
	}
}
