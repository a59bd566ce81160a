import sys
import time

time.sleep(4)
sys.exit("the job has failed")
