"""torch.utils.file_baton: a file-based lock between processes."""
import os
import time
import warnings


class FileBaton:
    """Lock that is held while a file exists.

    wait() polls every `wait_seconds` and warns once after `warn_after_seconds`.
    """

    def __init__(self, lock_file_path, wait_seconds=0.1, warn_after_seconds=None):
        self.lock_file_path, self.wait_seconds, self.warn_after_seconds = lock_file_path, wait_seconds, warn_after_seconds
        self.fd = None

    def try_acquire(self):
        """Creates the file; returns False if another process has already created it."""
        try:
            self.fd = os.open(self.lock_file_path, os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return False
        return True

    def wait(self):
        """Waits until the file is removed."""
        start, warned = time.time(), False
        while os.path.exists(self.lock_file_path):
            time.sleep(self.wait_seconds)
            if not warned and self.warn_after_seconds is not None and time.time() - start > self.warn_after_seconds:
                warnings.warn(f'Waited on lock file "{self.lock_file_path}" for {self.warn_after_seconds} seconds.', stacklevel=2)
                warned = True

    def release(self):
        """Closes and removes the file."""
        if self.fd is not None:
            os.close(self.fd)
        os.remove(self.lock_file_path)
