package segment

// Found is a file of a folder.
type Found struct {
	Path  string
	Bytes int64
}

// Older counts the files that Newest leaves out.
type Older struct {
	Files int
	Bytes int64
}

// Newest returns the newest files of a folder, oldest first, that have at most that many bytes together. Each replays without those that are left out.
func Newest(dir string, most int64) (files []Found, older Older, err error) {
	all, err := listFiles(dir)
	if err != nil {
		return nil, Older{}, err
	}
	first := len(all)
	for left := most; first > 0 && all[first-1].size <= left; first-- {
		left -= all[first-1].size
	}
	for i, f := range all {
		if i < first {
			older.Files++
			older.Bytes += f.size
			continue
		}
		files = append(files, Found{f.path, f.size})
	}
	return files, older, nil
}
